"""How fast, how late, how heavy: the real engine under works that are stated in full.

Each work runs in a process of its own, on a data file of its own, made for it and removed afterwards. That process does
nothing else: the one that was started by a person only shows how far it is. Nothing is warmed up and nothing is left
out: it is the engine that `noonday up` runs, with all that it keeps (decisions, audit, traces), and the default settings
unless NOONDAY_* variables say otherwise.

The handler notes its execution and the time, and returns. At the end its notes are compared with what the works asked
for and with the rows of the data file, read by a connection that is not the engine's: an execution is *lost* unless the
handler saw it and its row says SUCCEEDED, *duplicated* if the handler saw it more than once or nobody asked for it, *early*
if the handler saw it before its time. *Recorded* is the moment that connection finds nothing open any more, which is when
the last transaction has been synced.
"""

from noonday.model.errors import NoondayError


class BenchFailed(NoondayError):
    """A work could not be measured. What was measured before it is void."""

    code = "bench-failed"
