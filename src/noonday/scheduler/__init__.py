"""The scheduler: owns partitions of the timeline and turns what is due into executions.

Who decides: the lease says who tries, the store's epoch says who may; a fire under an old epoch is refused whole. What may
be trusted: the timeline in the store, and nothing else. The hot index is a hint that the hydrator fills ahead of time, that
intake and recorder add to after their commits, and that the sweeper checks against the store.

What each failure does. Dying between claim and fire: the entry is gone from the index but still on the timeline; the
sweeper finds it overdue and places it again. Dying between fire and publish: the batch is unsealed; whoever takes over
publishes what is still PENDING with the same dispatch number, and workers drop what they have seen. Firing twice: the
compare-and-set on (nominal time, revision) or on the dispatch number refuses the second. An index that lost its memory has
another generation, and is filled again from the head of the timeline.
"""
