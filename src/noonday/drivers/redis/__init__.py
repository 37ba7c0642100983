"""State that many processes share within milliseconds, and that may be lost: the hot index, claims of dispatches, the copies of
revocations that workers read, breakers, throttles, rate tokens, and leases for installations without etcd.

Correctness never depends on Redis. It may lose everything, or a part, at any time, and the cost is lateness: the timeline in the
store says what is due, the fire compares and sets, the dispatch number fences. The effect of each loss:

- *An entry of the hot index.* The sweeper walks the overdue rows of the store, asks which of them are missing, and places them.
- *The whole index.* Its generation keys are lost with it, and the hydrator fills it again from the head of the timeline.
- *An owner that dies with claimed entries.* It had removed them from Redis: lost entries, as above.
- *A claim.* A second delivery of the same dispatch may start; both runs have tokens, and the later one's is greater.
- *Revocations.* Their generation is lost with them: it is in the same slot, and read in the same call. Nothing starts until the
  revocations are copied again from the store and a new generation begins.
- *The server.* Every wait has a timeout, after which the port's own error is raised.

There are two hot indexes. `RedisHotIndex` keeps entries in Redis: they outlive their owner, and a new owner need not fill
anything. `HintedHotIndex` keeps them in the owner's process, and uses Redis only to pass on what other processes place: it costs
a fraction of the CPU, and a new owner fills it from the store. Both share fairly by the same code, `noonday.model.turns`.

Keys suit Redis Cluster: all keys that one script touches have one hash tag, which is `{p:N}` for partition N of the index,
`{c:X}` for claims, by the last digit of the execution's id, and `{f:POOL}` for the revocations of a pool. The server must be
Redis 7 or later, and must not evict keys to save memory (`maxmemory-policy noeviction`).
"""
