"""Leases in etcd: who is there, and who may try.

Who decides. Each member has a key under a lease of its own; etcd counts the time and takes the key away when the lease is
neither renewed nor given up. All read the same keys, so all compute the same owners. It is a hint all the same: the store's
epochs decide who may fire, so a lease that two believe in costs refused writes, never a double fire.

What may be trusted, and for how long. A renewal that was answered with yes, for the TTL from the moment it was *sent*. One
that was not answered: nothing; the lease goes on until it lapses, and the holder cannot know when. A read of the members is
linearizable. A watch is only a reason to read again: one whose server is frozen or cut off from the others is deaf without
knowing it, so the members are read again every two seconds whatever the watch says.

What each failure does. An endpoint that is gone or silent: the next one is asked beside it after a fraction of a second;
no call lasts longer than its time limit. So a call may arrive twice, or late; each is made so that this is harmless (the
holder chooses the lease's id itself, and writes only a free name or its own key). The leader dies: calls fail until there is
another, a second or two; the new leader gives every lease its whole TTL again. An answer to a join is lost: the next join
first revokes the lease that may have been granted. etcd is wiped: renewing answers no, and all join again. Our key is
deleted by somebody: seen when the members are read, and then it is a lapse.

Why the JSON gateway and not gRPC: it needs no further library, and has TLS, passwords and several endpoints. A call costs
about a millisecond, and an instance makes one or two in a second. It has to be on in etcd, as it is if nobody turned it off. The
names of users come with passwords only: through the gateway etcd takes every caller's certificate for the server's own.
"""
