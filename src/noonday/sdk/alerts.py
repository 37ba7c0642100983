"""What can be asked of a server about alerts."""

from datetime import datetime

from noonday.alerts.wire import Acknowledged, AcknowledgeRequest, AlertList, AlertView
from noonday.model.alert import AlertKind
from noonday.sdk.transport import Transport, path_of


class Alerts:
    """`client.alerts`: the inbox of what went wrong. Every change carries an Idempotency-Key."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    async def list(
        self,
        *,
        unread: bool | None = None,
        kind: AlertKind | str | None = None,
        task_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> AlertList:
        """One page of the alerts that meet every condition given, newest first; `next_cursor` asks for the following one.

        `task_id` is that of a task, or of any job.
        """
        query = {
            "unread": None if unread is None else str(unread).lower(),
            "kind": kind,
            "task_id": task_id,
            "cursor": cursor,
            "limit": limit,
        }
        return await self._http.get(AlertList, "/v1/alerts", query)

    async def get(self, alert_id: str) -> AlertView:
        """Raises NotFound."""
        return await self._http.get(AlertView, path_of("alerts", alert_id))

    async def acknowledge(self, alert_id: str, *, idempotency_key: str | None = None) -> AlertView:
        """It is read. If it happens again, another alert is opened. Raises NotFound."""
        path = path_of("alerts", alert_id, "acknowledge")
        return await self._http.change(AlertView, "POST", path, key=idempotency_key)

    async def acknowledge_all(
        self,
        *,
        kind: AlertKind | str | None = None,
        task_id: str | None = None,
        until: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """All that meet the conditions are read, or all there are. Answers how many that were."""
        which = AcknowledgeRequest(kind=AlertKind(kind) if kind else None, task_id=task_id, until=until)
        answer = await self._http.change(Acknowledged, "POST", "/v1/alerts/acknowledge", which, key=idempotency_key)
        return answer.acknowledged
