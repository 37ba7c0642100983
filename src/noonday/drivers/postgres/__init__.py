"""The store on PostgreSQL.

Who decides: the functions of `noonday.transitions`, as on every store. How decisions are kept apart without holding locks while a
client thinks: a fire or a settlement reads without locks, decides, and sends everything in one statement, which locks what
was read (jobs, then timeline, executions, slots), sees that it is unchanged, and writes; if it is not, nothing is written
and the decision is made again. Plain one-shots and plain successes need no decision at all: one statement finds, locks and
moves thousands of them. An edit by the API locks the job's row first and decides under that lock; a session that is idle in
a transaction for a few seconds is ended by the server, so that a frozen process holds up nobody for longer.

What each failure does. A lost answer: the statement was committed or not; compare-and-set makes the second try a no-op
that is refused, and unsealed batches are published by whoever adopts them. A frozen client: it holds no locks, or for
seconds. A deadlock or a lock that is not to be had in time: reported as unavailable, and tried again by the loop.
"""
