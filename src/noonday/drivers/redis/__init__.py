"""What many processes have to see within milliseconds, and nobody has to be able to trust: the hot index, the claims of
dispatches, the flags by which a wish reaches a worker, and leases for those who have no etcd.

Redis is never in the path of correctness. It may lose everything, or a part, at any time, and the cost is lateness: the timeline
in the store says what is due, the fire compares and sets, the dispatch number fences. What each loss does:

- *An entry of the hot index.* The sweeper walks what is overdue in the store, asks which of it is missing, and places it.
- *The whole index.* Its generation keys are gone with it, and the hydrator fills it again from the head of the timeline.
- *An owner that dies with entries in hand.* It had taken them out of Redis: lost entries, as above.
- *A claim.* A delivery of the same dispatch may begin a second time; both runs have tokens, and the later one's is greater.
- *Revocations.* Their generation is lost with them: it is in the same slot, and read in the same call. Nothing starts until
  the revocations are copied again from the store and a new generation begins.
- *The server.* Every wait has an end; whoever waited is told so by an error of the port's own.

There are two hot indexes. `RedisHotIndex` keeps entries in Redis: they outlive their owner, and a new one need not fill anything.
`HintedHotIndex` keeps them in the owner's process, and uses Redis only to hand on what other processes place: it costs a
fraction of the CPU, and a new owner fills it from the store. Both take turns by the same plain code, `noonday.model.turns`.

Keys are made for Redis Cluster: all that one script touches has one hash tag, which is `{p:N}` for partition N of the index,
`{c:X}` for claims, by the last digit of the execution's id, and `{f:POOL}` for the flags of a pool. The server must be Redis 7 or
later, and should not drop keys to save memory (`maxmemory-policy noeviction`): that, too, costs only lateness.
"""
