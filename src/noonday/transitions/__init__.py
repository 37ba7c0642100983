"""Transitions: pure functions that decide what a fire, a settlement or an edit writes, once for every store.

Who does what. A driver reads the rows that a decision needs and passes them in as `Inputs` (an edit gets a `Snapshot`). The
functions of this package decide. They collect what the transaction is to write in a `WriteSet`: new executions, changed
executions, timeline rows, decisions, slots, dead letters, incidents. The driver writes all of it in one transaction, or nothing.
This package performs no I/O and does not read the clock, so every rule exists once and is tested without a database. Two frequent
cases need no decision, and a driver may write them in bulk: one-shots without conditions (`fire_batch.is_simple`) and successes
(`settling.split_successes`).

The three kinds of transitions:

- *Fire* (`fire_batch`): a due timeline entry becomes an execution, a decision not to run, or is blocked by a limit. The
  schedule advances to its next time in the same write set.
- *Settle* (`settling`): a worker's report, or the discovery that no report will come, moves an execution along the transition
  table of `model/execution.py`. A retry is a timeline row in the same write set.
- *Edit* (`editing`): a user's change of one job, which `intake/edits.py` has decided, becomes rows.

All three close executions by one function, `WriteSet.settle`, and end with `WriteSet.finish`. So slots are freed and the next
buffered execution starts, whichever transition closed the one before it.

How a store keeps decisions apart. Inputs are valid only while nothing changes them.

- SQLite has one writer. It reads, decides and writes inside one write transaction, so nothing can change in between.
- PostgreSQL reads and decides without locks, because no lock may wait for a client. Then it sends the write set in one statement,
  together with the versions of the rows that it read. The statement locks jobs, timeline rows, executions and slots, in this
  order, and writes only if nothing has changed. Otherwise it refuses, and the driver reads and decides again, a limited number of
  times. An edit is the exception: it locks the row of its job first.

What may be trusted, and for how long. `Inputs` are rows as they were read, plus the consequences of what this batch has decided
since, so a later entry of a batch sees the effect of an earlier one. A fire trusts no hot index: the driver compares each entry
with the timeline first. A settlement trusts no worker: it applies only a report of the present dispatch, from the worker that
has it.

If the transaction fails, nothing has happened: the inputs, the decision and the write set are discarded. `WriteSet.entries` and
`WriteSet.revocations` are copied to the hot index and to the workers after the commit. A lost copy costs time, because the store
has the truth.

Beside these, `plans` decodes the jobs of recurring entries, `replanning` moves schedules when time-zone data change, and
`pruning` remembers how far the deletion of old rows has come.
"""
