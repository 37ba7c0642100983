"""The bus on Kafka: workers of a pool share its topics, and their reports go to a log.

**Topics.** A pool has a topic for each lane. A message there packs several dispatches of one pool and lane (`codec.py`). The
log is one topic, `PREFIX.events`; a message there packs the entries of one `report` call. Entries that no recorder can settle
go to `PREFIX.dead-letters`, for people to look at. Topics are created when they are first needed.

**Assignment.** The broker decides which worker gets which partition: the workers of a pool are a consumer group, and each
partition has one worker at a time (`member.py`). A worker that stays without room leaves the group, so that no dispatch waits
for it, and joins again when it has room. A worker learns its log partition when it joins, and never changes it. The broker does
not decide who reads a log partition: every reader keeps its own offset, and the store ensures that only one of them counts.

**Trust.** A message counts only if one of our keys signed it for its topic and partition (`crypto/signature.py`). Other
messages are counted, and neither workers nor recorders see them. An attacker who can write to a topic can repeat an honest
message there. The worker drops a dispatch that is acked or old, and a repeated report changes nothing. The metadata of a
committed offset is not signed: an attacker who can commit for a group can make its pool look empty or full, and no more.

**Commits.** An offset is committed when every dispatch of every earlier message is acked, and not one message further
(`offsets.py`). A dispatch that a worker parks or forgets holds back its partition: the next worker gets it again. When a
partition moves to another worker, its unacked dispatches are redelivered too; a worker that keeps a partition continues where
it was. Redelivery is normal: claims drop duplicates.

**Credit.** With each offset, a worker commits its read position, the mean number of dispatches in a message, and its
concurrency. Schedulers read this and the ends of the topics five times a second (`credit.py`). They allow a depth of four
times the workers' concurrency, or of about what the workers took in the last second if that is more. If no worker of a pool
commits for ten seconds, the pool has no workers and no credit. If the broker does not answer for five seconds, there is no
credit at all.

**Failures.**

- *A broker does not answer.* `publish` and `report` raise BusUnavailable at their timeout; the messages may arrive
  nevertheless, and the caller sends them again. `take` and `read` return nothing. Credit runs out within five seconds. All of
  them recover without help when the broker is back.
- *A broker dies.* Acknowledged messages are on its replicas; with one broker, in its files.
- *A worker dies.* Its partitions move to other workers after `lost_after_sec`, from the committed offsets.
- *A worker is frozen.* The same. When it resumes, it learns that it lost its partitions, drops its buffer and begins again.
  Its acks of earlier dispatches are ignored.
- *A topic is deleted and recreated.* The log has a new generation: reading it raises StaleEpoch until the generation is read
  again. The dispatches in a deleted pool topic are lost, and orphan recovery finds them.
- *The log begins after a reader's offset.* The reader continues at the earliest entry, and logs the gap.
- *A key is removed from the keyring.* Messages that it signed are refused. Remove it after the topics have dropped its
  messages: after a week.

**Threads.** librdkafka waits in real time. Each consumer has its own thread, and no other thread touches it; so has the
producer. They hand over results in batches (`thread.py`). `close` ends all threads, with one exception: the thread of a worker
whose last commit the broker does not answer. That thread ends when the broker answers, or with the process.
"""
