"""Records the success of an execution in the transaction of its handler (`ctx.complete`)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import InvalidInput
from noonday.model.execution import Outcome
from noonday.model.ids import WorkerId
from noonday.model.message import Report
from noonday.model.nesting import MOST_LEVELS, is_too_deep
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions

if TYPE_CHECKING:
    from noonday.worker.context import Context


@dataclass(eq=False)
class Completer:
    """Completes executions for the runs of one worker identity."""

    _completions: Completions
    _worker: WorkerId
    _keyring: Keyring
    _clock: Clock
    _result_limit: int

    async def complete(self, run: "Context", connection: Any, result: Any, schema: str | None) -> None:
        """Record a success as its report would, but in the transaction of the handler."""
        now_ms = self._clock.now_ms()
        await self._completions.complete(connection, self._report(run, result, now_ms), now_ms, schema=schema)
        run._completed = True
        run._close_children("ctx.complete has ended this execution")

    def _report(self, run: "Context", result: Any, now_ms: int) -> Report:
        dispatch = run._dispatch
        return Report(
            dispatch.execution_id,
            dispatch.number,
            self._worker,
            int(Outcome.SUCCEEDED),
            run._started_ms,
            now_ms,
            result=self._sealed(run, self._encoded(run, result)),
            progress=self._sealed(run, run._reported_progress),
            pool=dispatch.pool,
            job_id=dispatch.job_id,
            tenant=dispatch.tenant,
            payload_bytes=len(dispatch.payload or b""),
        )

    def _encoded(self, run: "Context", result: Any) -> bytes | None:
        if result is None:
            return None
        text = (run._encode or msgspec.json.encode)(result)
        if is_too_deep(text):
            raise InvalidInput(f"the result is nested more than {MOST_LEVELS} levels deep: return a flatter value")
        if len(text) > self._result_limit:
            raise InvalidInput(
                f"the result has {len(text)} bytes, more than {self._result_limit}: store it elsewhere, and pass a reference"
            )
        return text

    def _sealed(self, run: "Context", text: bytes | None) -> bytes | None:
        if text is None:
            return None
        return self._keyring.seal(text, context_of(run._dispatch.tenant, run._dispatch.job_id))
