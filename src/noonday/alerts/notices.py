"""Notices: collect alert events for each preference, and send them when they are due.

There are three steps, and a crash may follow any of them. One transaction moves alert events into open notices. A due notice is
closed, so that later events go to the next one. Then the job that sends the notice is created under the notice's unique key, and
only after that is the notice dropped: if the step is repeated, it finds the same job. Several processes may run this loop.
"""

from collections.abc import Collection, Sequence

import uuid_utils

from noonday.alerts.channels import job_of
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.preferences import Seal
from noonday.alerts.wording import SUBJECTS, dead_execution_of
from noonday.model.alert import AlertEvent
from noonday.model.errors import BadKey
from noonday.model.ids import ExecutionId
from noonday.model.notice import Digest, OpenNotice, Preference, SelectedEvent, select_events
from noonday.ports.alerts import Alerts
from noonday.ports.clock import Clock
from noonday.ports.notices import Notices
from noonday.ports.queries import QueryStore

BATCH = 1_000
BATCHES = 50
"""Batches collected before anything is sent, so that events of one burst share a message."""
SEND_LIMIT = 100
"""Notices sent in one round."""


class Notifier:
    """Collects alert events and creates the jobs that send notices."""

    def __init__(
        self, alerts: Alerts, notices: Notices, query_store: QueryStore, seal: Seal, post: NoticeJobs, clock: Clock
    ) -> None:
        self._alerts = alerts
        self._notices = notices
        self._query_store = query_store
        self._seal = seal
        self._post = post
        self._clock = clock

    async def run_once(self, now_ms: int) -> int:
        collected = await self.collect(now_ms)
        return collected + await self.send_due(now_ms)

    async def collect(self, now_ms: int) -> int:
        """Add new alert events to the notices of every matching preference. Returns the number of events."""
        count = 0
        for _ in range(BATCHES):
            events = await self._alerts.events(BATCH)
            if events:
                count += await self._collect(events, now_ms)
            if len(events) < BATCH:
                break
        return count

    async def _collect(self, events: Sequence[AlertEvent], now_ms: int) -> int:
        preferences = await self._notices.preferences({event.tenant for event in events})
        selected = select_events(events, preferences)
        opened = _new_notices(preferences, selected, now_ms)
        return await self._notices.collect([event.id for event in events], selected, opened)

    async def send_due(self, now_ms: int) -> int:
        """Create the jobs of due notices. Returns their number.

        Raises BadKey after the last one if a recipient could not be decrypted; those notices stay.
        """
        due = await self._notices.close_due(now_ms, SEND_LIMIT)
        unreadable: BadKey | None = None
        for notice in due:
            try:
                await self._send(notice)
            except BadKey as error:
                unreadable = error
            else:
                await self._notices.drop(notice.id)
        if unreadable:
            raise unreadable
        return len(due)

    async def _send(self, notice: OpenNotice) -> None:
        preference = await self._notices.find_preference(notice.tenant, notice.preference)
        if preference is None or not preference.enabled:
            return
        digest = await self._notices.digest(notice, SUBJECTS)
        if digest.counts:  # an empty digest means that another process has sent the notice
            to, now_ms = self._seal.open(preference), self._clock.now_ms()
            attempts = await self._attempts(digest)
            spec = job_of(digest, preference, to, now_ms, self._seal.seal_notice, attempts)
            await self._post.post(notice.tenant, spec)

    async def _attempts(self, digest: Digest) -> int | None:
        """Attempts of the execution that the subject names. None if it names none, or its execution is deleted."""
        execution_id = dead_execution_of(digest)
        if execution_id is None:
            return None
        execution = await self._query_store.find_execution(digest.tenant, ExecutionId(execution_id))
        return execution.attempt if execution else None


def _new_notices(
    preferences: Sequence[Preference], selected: Collection[SelectedEvent], now_ms: int
) -> list[OpenNotice]:
    """Notices for the preferences with new events. The store ignores one whose preference has an open notice already."""
    with_events = {(each.event.tenant, each.preference) for each in selected}
    return [
        OpenNotice(str(uuid_utils.uuid7()), preference.tenant, preference.id, now_ms + preference.digest_ms)
        for preference in preferences
        if (preference.tenant, preference.id) in with_events
    ]
