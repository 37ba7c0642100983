"""Client of /v1/alerts."""

from datetime import datetime

from noonday.model.alert import AlertKind
from noonday.model.alert_view import Acknowledged, AcknowledgeRequest, AlertList, AlertView
from noonday.sdk.transport import ClientPart, path_of


class AlertsClient(ClientPart):
    """`client.alerts`. Errors and retries are as in `Client`; every change has an Idempotency-Key."""

    async def list(
        self,
        *,
        unread: bool | None = None,
        kind: AlertKind | str | None = None,
        task_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> AlertList:
        """Return a page of the alerts that match all conditions, newest first. `next_cursor` is the next `cursor`.

        `task_id` is the id of a task or of any job.
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
        """Return an alert. Raises NotFound."""
        return await self._http.get(AlertView, path_of("alerts", alert_id))

    async def acknowledge(self, alert_id: str, *, idempotency_key: str | None = None) -> AlertView:
        """Acknowledge an alert. If its cause recurs, a new alert opens. Raises NotFound."""
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
        """Acknowledge all alerts that match the conditions; without conditions, all. Returns their number."""
        filters = AcknowledgeRequest(kind=AlertKind(kind) if kind else None, task_id=task_id, until=until)
        response = await self._http.change(Acknowledged, "POST", "/v1/alerts/acknowledge", filters, key=idempotency_key)
        return response.acknowledged
