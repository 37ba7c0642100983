"""Execution: take dispatches of some pools, run their handlers, and report. A worker has no access to the store.

`worker.py: Worker` composes the steps below. Each step is a class that owns its state. An attempt (`run.py: Run`) passes through
all of them:

1. Take (`taking.py`). The worker takes as many dispatches as keep its handlers busy for a moment (`capacity.py`).
2. Claim (`claims.py`). It claims a dispatch in the signals and gets the fencing token. A duplicate delivery is dropped if the
   dispatch is acked, and parked if another delivery has the claim (`parked.py`). Dispatches that will not start soon are claimed
   when there is a slot.
3. Wait (`backlog.py`). A dispatch that comes early waits for its instant. Due runs wait for a slot: tenants take turns
   (`ready.py`), and one tenant's slow calls cannot take all slots (`sharing.py`).
4. Check (`pre_start_check.py`). A breaker (`retry_breaker.py`) or the limits of an endpoint (`throttling.py`) may return the run
   to the timeline, at no attempt. Then one call to the signals asks for all runs that start now whether they are revoked or
   fenced. A request of a user that was answered before this check wins. An expired run ends here too.
5. Run (`starting.py`). The run becomes active (`active.py`). If it may have run before, its start goes to the log first
   (`announcing.py`). A host (`hosts.py`, `host.py`) enters the handler: a coroutine on the handlers' loop, a plain function in a
   thread (`threads.py`), in a spawned process (`process.py`, `child.py`), or in a remote worker, which takes its runs over HTTP
   (`remote.py`, `remote_handlers.py`, `remote_pools.py`).
6. Report (`reporting.py`). The outcome (`ended.py`) goes to the log through the outbox (`outbox.py`), which sends it again until
   the log acknowledges it. Then the dispatch is acked in the signals, and only then it is marked as processed on the bus
   (`acks.py`). A run of more than a second reports its start likewise.

Beside them runs the control loop (`control.py`). Four times a second it enforces timeouts (`deadlines.py`), heeds revocations
(`revocations.py`), sends heartbeats (`heartbeats.py`), and checks whether this worker may have been judged lost
(`connectivity.py`, `membership.py`). `closing.py` stops all of it in order.

Who decides. The claim decides which worker runs a dispatch. The store decides, by the dispatch number, whether a report counts.
The recorder decides whether a worker is lost. The worker decides when a run is over.

What may be trusted, and for how long. A claim is trusted for 70 % of its lifetime, then renewed. The answer of the pre-start
check is used at once. A dispatch that was fired over five minutes ago is not started. Polling, heartbeats and revocations run on
the control loop, coroutine handlers on a loop in another thread, runs in threads and processes on a third. So a coroutine that
blocks delays the other coroutines, and never makes the worker look dead.

What each failure does.

- The worker dies before it reported a run: the claim lapses and the next delivery takes over, or orphan recovery dispatches the
  execution again. From then on its start is reported before the handler is entered, so a handler that kills its process at
  once uses up its attempts.
- The worker dies after it reported a start: the recorder misses the heartbeats, and the execution is retried as
  FAILED_WORKER_LOST.
- The worker reports a dispatch that is no longer the present one: the report is refused, and the run is revoked.
- The control loop stalls, or reaches neither bus nor signals, for so long that a recorder may have judged the worker lost: the
  worker continues under a new identity at once (`identity.py`). Its runs are asked to end, and are reported under the old one.
- The signals are unavailable: nothing starts, runs continue. After two seconds the worker takes nothing more.
- The bus is unavailable: runs continue and their reports wait. Once a heartbeat is overdue, the worker takes nothing more.
- An entry is too large for the log: a small one that says so replaces it.
- A run ignores its timeout, its revocation or a stop for the whole cancel grace: it is abandoned (`abandoned.py`). The worker
  reports its end, and drops its own outcome. A process is killed before that. A worker with too many abandoned runs is replaced:
  its parent process (`parent.py`) starts a successor.
- The worker is stopped: runs may finish within the drain time, then they are interrupted, at no attempt. The stop ends within the
  drain time, the cancel grace and 2 s, even if servers are unavailable.
"""
