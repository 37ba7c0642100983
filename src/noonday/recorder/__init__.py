"""The recorder: the only one that settles what workers report, in batches.

All that a worker says goes to one partition of the log of events. The recorder of a partition reads it in order and applies
it to the store; its place in the log moves in the same transaction, by compare and set, so no batch counts twice and no
former recorder writes. It also counts time there: each tick is written after the former one was acknowledged, so ticks
cannot pile up. A worker is lost when the recorder reads six ticks of its own and nothing of that worker in between. So what
a worker said is always applied before it is judged, and a log that stands still makes nobody look dead.

A log of another generation has lost its memory, and the dispatches in flight with it: RUNNING executions are lost, dispatched
ones that had not started return to the timeline. An embedded engine has a new log at every start, so it recovers the same way.
"""
