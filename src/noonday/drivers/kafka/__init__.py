"""The bus on Kafka: pools of workers share topics, and what workers say goes to a log.

**What goes where.** A pool has a topic for each lane. A message there is a pack: several dispatches of one pool and lane, as
many as are worth sharing (`message.py`). The log is one topic, `PREFIX.events`; a message there is what one call reported. What
nobody can settle goes to `PREFIX.dead-letters`, for people to look at. Topics are made when they are first needed.

**Who decides who gets what.** The broker: workers of a pool are a group, and each partition has one worker at a time
(`member.py`). A worker that stays without room leaves the group, so that nobody waits for it, and comes back when it has some.
Which partition of the log a worker writes to it is told when it joins, for good. Who reads a partition of the log is not
decided here: every reader keeps its own place, and the store sees to it that only one of them counts.

**What may be trusted.** Nothing that is in a topic, unless one of our keys signed it, for that topic and that partition
(`crypto/signature.py`). What is not signed is counted, and neither a worker nor a recorder ever sees it. Whoever can write to
a topic can repeat an honest message there; a dispatch that was told of already, or that is old, is dropped by the worker, and
what is reported twice changes nothing. The word that goes with each committed offset is not signed: whoever may commit for a
group can make its pool look empty or full, and no more.

**When something is done with.** An offset is committed when every dispatch of every message before it was said to be done
with, and not one message further (`offsets.py`). A dispatch that a worker parks, or forgets, holds back its partition: the
next worker gets it again. So is whatever was handed out when a partition changes hands; for what a worker keeps, it goes on
where it was. Redelivery is normal: claims are what drops it.

**How deep a pool is.** A worker commits, with each offset, how far it has read, how large a message is on average, and how
many handlers it runs. Schedulers look at that and at the ends of the topics five times a second (`credit.py`), and allow what
the workers took in the last second or four times the room they have. Nobody's word for ten seconds: no workers, no credit. No
answer from the broker for five: no credit at all.

**What each failure does.**

- *A broker does not answer.* `publish` and `report` raise BusUnavailable when their time is over; what they sent may arrive
  nevertheless, and is sent again by whoever called. `take` and `read` answer with nothing. Credit runs out in five seconds.
  All of them go on by themselves when it is back.
- *A broker dies.* What was acknowledged is on its replicas; with one broker, in its files.
- *A worker dies.* Its partitions go to others after `lost_after_sec`, from what was committed.
- *A worker is frozen.* The same; when it wakes, it is told that it lost everything, forgets what it had, and begins again.
  What it says to be done with then is ignored.
- *A topic is deleted and made again.* The log is of another generation: reading it raises StaleEpoch until the generation is
  read again. The dispatches in a deleted pool topic are lost, and orphan recovery finds them.
- *The log is shorter than a reader's place.* It goes on at the earliest that there is, and says so.
- *A key is taken out of the keyring.* What it signed is refused. Take it out once the topics have forgotten it: after a week.

**Threads.** librdkafka waits in real time. Each consumer has a thread of ours that is the only one to touch it, and so has the
producer; they hand over what they have in batches (`thread.py`). `close` ends them all. One can outlive it: of a worker whose
last commit is not answered, because the broker does not answer anything. It ends when the broker does, or with the process.
"""
