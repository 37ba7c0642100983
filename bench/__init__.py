"""How fast, how late, how heavy: the real engine under works that are stated in full.

Each work runs in a process of its own, in a store of its own, made for it and removed afterwards. That process does
nothing else: the one that was started by a person only shows how far it is. Nothing is warmed up and nothing is left
out: it is the engine that `noonday up` runs, with all that it keeps (decisions, audit, traces), and the default settings
unless NOONDAY_* variables say otherwise. On a cluster the store is a schema, with topics and keys of its own, on servers
that run already; schedulers, recorders and workers are processes started for each measurement, by the same commands that
a fleet would run, and the process of the work is the API: it creates the jobs, then only looks.

The handler notes its execution and the time, and returns. At the end its notes are compared with what the works asked
for and with the rows of the store, read by a connection that is not the engine's: an execution is *lost* unless the
handler saw it and its row says SUCCEEDED, *duplicated* if the handler saw it more than once or nobody asked for it, *early*
if the handler saw it before its time. *Recorded* is the moment that connection finds nothing open any more, which is when
the last transaction has been synced.

CPU time is that of whole process trees, so that what a server's children used counts when they have ended, too. Servers
are found by the ports they listen on; whatever else they do for others meanwhile is counted in.
"""

from pathlib import Path

from noonday.model.errors import NoondayError

ROOT = Path(__file__).parents[1]
"""The clone. Benchmarks are not part of the package that users install."""


class BenchFailed(NoondayError):
    """A work could not be measured. What was measured before it is void."""

    code = "bench-failed"
