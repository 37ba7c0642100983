"""Leases in etcd: which instances are alive, and which may try to own partitions.

Decisions. Each member has a key under its own lease; etcd measures the time, and deletes the key when the lease lapses or is
revoked. All members read the same keys, so all compute the same owners. The lease is only a hint: the store's epochs decide
who may fire, so a lease that two instances believe in costs refused writes, never a double fire.

Trust. A renewal that etcd confirmed is valid for the TTL from the moment it was *sent*. A renewal without an answer tells
nothing: the lease lives on until it lapses, and its holder cannot know when that is. A read of the members is linearizable. A
watch is only a reason to read again: if its server is frozen or cut off from the others, it stays silent, so the members are
read again every two seconds whatever the watch reports.

Failures. If an endpoint is down or silent, the next one is asked as well after a fraction of a second; no call lasts longer
than its timeout. So a call may arrive twice or late, and each call is made so that this is harmless (the holder chooses the
lease's id itself, and writes only a free name or its own key). If the leader dies, calls fail until there is a new one, for a
second or two; the new leader gives every lease its whole TTL again. If the answer to a join is lost, the next join first
revokes the lease that may have been granted. If etcd is wiped, renewals are denied, and all instances join again. If someone
deletes our key, the next read of the members notices it, and the lease counts as lapsed.

The driver uses the JSON gateway instead of gRPC: it needs no further library, and has TLS, passwords and several endpoints. A
call costs about a millisecond, and an instance makes one or two in a second. The gateway must be enabled in etcd, which is the
default. User names work only with passwords: through the gateway, etcd takes every caller's certificate for the server's own.
"""
