"""Tells people what happened: gathers it for each of them, and sends it when it is due.

Three steps, each of which may be the last before a crash. What happened is taken away in the transaction that gathers it. A
notice that is due is closed, so that what comes later goes to the next one. Then the job that sends it is made, under a key of
its own, and only after that the notice is dropped: made again, it is the same job. Any number of these loops may run at once.
"""

from collections.abc import Collection, Sequence

import uuid_utils

from noonday.alerts.channels import job_of
from noonday.alerts.posting import Post
from noonday.alerts.preferences import Seal
from noonday.alerts.wording import SUBJECTS
from noonday.model.alert import Happening
from noonday.model.errors import BadKey
from noonday.model.notice import Note, Open, Preference, notes_of
from noonday.ports.alerts import Alerts
from noonday.ports.clock import Clock
from noonday.ports.notices import Notices

BATCH = 1_000
BATCHES = 50
"""So many are gathered before anything is sent, so that what is there together is told together."""
AT_ONCE = 100


class Notifier:
    def __init__(self, alerts: Alerts, notices: Notices, seal: Seal, post: Post, clock: Clock) -> None:
        self._alerts = alerts
        self._notices = notices
        self._seal = seal
        self._post = post
        self._clock = clock

    async def run_once(self, now_ms: int) -> int:
        gathered = await self.gather(now_ms)
        return gathered + await self.send_due(now_ms)

    async def gather(self, now_ms: int) -> int:
        """Note what happened for everybody who wants to be told."""
        taken = 0
        for _ in range(BATCHES):
            happenings = await self._alerts.happenings(BATCH)
            if happenings:
                taken += await self._gather(happenings, now_ms)
            if len(happenings) < BATCH:
                break
        return taken

    async def _gather(self, happenings: Sequence[Happening], now_ms: int) -> int:
        preferences = await self._notices.preferences({each.tenant for each in happenings})
        notes = notes_of(happenings, preferences)
        return await self._notices.take_in([each.id for each in happenings], notes, _opened(preferences, notes, now_ms))

    async def send_due(self, now_ms: int) -> int:
        """Make the jobs of what is due. Raises BadKey after that, if some could not be read: they stay."""
        due = await self._notices.close_due(now_ms, AT_ONCE)
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

    async def _send(self, notice: Open) -> None:
        preference = await self._notices.find_preference(notice.tenant, notice.preference)
        if preference is None or not preference.enabled:
            return
        digest = await self._notices.digest(notice, SUBJECTS)
        if digest.counts:  # else somebody else has sent it meanwhile
            spec = job_of(digest, preference, self._seal.open(preference), self._clock.now_ms(), self._seal.vouch)
            await self._post.post(notice.tenant, spec)


def _opened(preferences: Sequence[Preference], notes: Collection[Note], now_ms: int) -> list[Open]:
    """What is opened for those who have nothing open yet."""
    wanted = {(note.happening.tenant, note.preference) for note in notes}
    return [
        Open(str(uuid_utils.uuid7()), each.tenant, each.id, now_ms + each.digest_ms)
        for each in preferences
        if (each.tenant, each.id) in wanted
    ]
