"""Ownership and dispatch: turn due entries of the timeline into executions.

Each instance owns some partitions of the timeline. The hydrator copies entries that are due soon from the store to the hot
index. The dispatcher claims due entries, fires them in one transaction, publishes the dispatches to the pools and seals the
batch. The sweeper recovers what is lost on the way.

Who decides. The lease decides which instance tries to own a partition; the partition's epoch in the store decides which
instance may. Taking a partition over raises its epoch, and the store fires nothing of a partition under an older epoch. The
store also decides, in the transaction that fires, whether an entry is due, whether it is still current, and whether a slot is
free.

What may be trusted, and for how long. Only the timeline in the store is trusted. The hot index is a cache: the hydrator fills
it ahead of time, intake and recorder add to it after their commits, and the sweeper compares it with the store. A lease is
trusted for one TTL after its last renewal; then the instance stops firing until a renewal succeeds. Tenant settings, pauses
and endpoint secrets are cached for a second or two.

What each failure does.

- Death between claim and fire: the entry is gone from the index but still on the timeline. The sweeper finds it overdue and
  places it again.
- Death between fire and publish: the batch stays unsealed. Another instance adopts it and publishes what is still PENDING,
  with the same dispatch number. Workers drop duplicates.
- The bus loses a dispatch: orphan recovery puts its execution back on the timeline with the next dispatch number, once no
  worker can start the lost one.
- Two fires of one entry: the compare-and-set on (nominal time, revision) or on the dispatch number refuses the second.
- The hot index loses its memory: it has another generation, and the hydrator fills it again from the head of the timeline.
- The store refuses an epoch: the instance drops all its partitions. It takes partitions again when the members change, or
  after one TTL.
- The instance completes no round with the store or the bus for two TTLs: it gives up its lease, so that others try.
- An entry cannot be fired: its batch is halved until the entry is alone. Bad data is decided as ERROR; other entries are tried
  again later.
"""
