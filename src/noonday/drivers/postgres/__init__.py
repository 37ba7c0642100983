"""The store on PostgreSQL.

The functions of `noonday.transitions` decide, as on every store. No lock waits for a client. A fire or a settlement reads without
locks, decides, and sends everything in one statement. The statement locks what was read (jobs, then timeline, executions,
slots), checks that it is unchanged, and writes. If something has changed, nothing is written and the decision is repeated.
Simple one-shots and simple successes need no decision: one statement finds, locks and moves thousands of them. An edit by the
API locks the job's row first and decides under that lock. The server ends a session that is idle in a transaction for a few
seconds, so that a frozen process blocks others no longer than that.

Failures:

- Lost answer: the statement was committed or not. Compare-and-set refuses the second try, which then writes nothing. The
  instance that adopts an unsealed batch publishes it.
- Frozen client: it has no locks, or keeps them for seconds.
- Deadlock, or a lock that is not granted in time: the driver raises StoreUnavailable, and the calling loop tries again.
"""
