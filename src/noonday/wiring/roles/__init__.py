"""The roles of a process, composed once for every mode.

A role is a set of loops with their intervals, made from the drivers that it needs and from the context that it shares with the
other roles of its process. `composition` says which roles go together, and in which order they start. An embedded engine has
all roles, on one set of drivers. A process of a cluster has those that were chosen. The simulation composes the same roles on
drivers that fail on purpose.

No role assigns a hook of another one. What a role calls in another is an argument of its constructor: a recorder gets what it
calls after a settlement. Everything that places an entry sets the event in the context that wakes the dispatcher.

A process stops in the order of the data flow. The roles hand over: they begin nothing new, and release what other processes
wait for. They finish what was begun, the worker before the recorder. Then all loops end, and the remaining leases are
released. Each step has a share of the time that `wiring/stopping.py` allows. The next start completes what a step did not.
"""
