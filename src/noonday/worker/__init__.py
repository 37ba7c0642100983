"""The worker: takes dispatches of its pools, runs handlers, beats, and reports. It has no access to the store.

One attempt is a pipeline of small steps: admit (claim it, know its handler) -> wait for its instant -> last look (cancel,
pause, edit, expiry: what was answered to the user before it, wins) -> perform (timeout, cancellation, user code) -> outcome
-> report. Polling, beats and flags live on the control loop; coroutines on a loop of their own, in another thread; runs in
threads and processes are carried by a third. So a coroutine that blocks harms its neighbours on the handlers' loop, and
never makes the worker look dead.

What each failure does. Dying before a report: nobody knows of the run; the claim lapses, or the net finds the dispatch, and
it is handed out again. From then on its start is reported before the handler is entered, so a handler that kills its process
at once uses up its attempts. Dying after a start was reported: the recorder misses the beats and the execution is retried as
FAILED_WORKER_LOST. Reporting under a number that is no longer the present one: refused, and the worker is told to stop that
run. Stalling, or reaching nobody, for so long that others may have judged it: the worker goes on under a new identity at once;
its runs end under the old one. An entry that is too large for the log: a small one that says so takes its place.

A run is asked to end by its timeout, a person, or a stop. If it goes on for the whole grace, it is abandoned (`abandoned.py`):
its end is reported for it, and its own is dropped. A process is killed before that. With too many abandoned runs a worker is worn
out; its parent (`parent.py`) starts a successor. A stop ends within the drain time, the grace and 2 s, whatever is away.
"""
