"""Settling: apply what workers report to the store, and judge which workers are lost.

A worker writes starts, ends and heartbeats to one partition of the events log. The recorder of that partition reads them in
order and settles them in the store, in batches. No other part settles reports.

Who decides. The lease decides which recorder tries to settle a partition; the checkpoint in the store decides which recorder
may. The checkpoint moves by compare-and-set in the transaction that settles a batch, so no batch counts twice and no former
recorder writes. A report is applied if it is of the execution's present dispatch and worker, and if the transition is legal.
Otherwise it is refused and counted, and a run that has just started is revoked.

What may be trusted, and for how long. Only the log decides whether a worker is alive. The recorder writes a tick to its
partition every 5 s, each after the former tick was acknowledged, so ticks cannot pile up. A worker is lost when the recorder
reads six of its own ticks and nothing of that worker in between. So a worker's reports are always applied before the worker is
judged, and a log that stalls makes no worker look dead. Ticks of former recorders do not count. A claim that a dead worker did
not ack lapses, so the recorder acks the last reports of silent workers for them.

What each failure does.

- The recorder dies, or cannot reach the log or the store: its lease lapses or is given up. The next recorder continues at the
  checkpoint, and first reads back the last reports that the former one settled.
- Another recorder moved the checkpoint: the store refuses the batch, and the partition is released.
- The store is unavailable: the batch stays in the log and is read again.
- The store refuses a batch: it is halved until the culprit is alone. Bad data goes to the dead-letter topic, and its execution
  is FAILED. Any other culprit is tried again in its place.
- The hot index or the signals are unavailable: the batch counts. The sweeper finds entries that were not hinted; acks
  for silent workers are tried again.
- The log loses its memory: it has another generation, and the dispatches in flight are lost with it. RUNNING executions are
  lost; dispatched executions that had not started return to the timeline. An embedded engine has a new log at every start, so
  it recovers the same way.
"""
