"""Alert preferences: wire types, validation, storage, and test notices. Field names are snake_case."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from noonday.alerts.channels import job_of
from noonday.alerts.notice_jobs import NoticeJobs
from noonday.alerts.sealed_notices import SealedNotice, seal_notice
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.alert import AlertKind
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, Flaw, InvalidInput, NotFound
from noonday.model.ids import JobId, TenantId, is_id
from noonday.model.job import instant_of, is_target_name
from noonday.model.notice import ChannelType, Digest, Notice, Preference, Recipient
from noonday.model.preference import PreferenceSpec, PreferenceView, SentNotice
from noonday.model.receipt import Receipt
from noonday.model.stored import StoredDecoder
from noonday.ports.channels import Channels
from noonday.ports.clock import Clock
from noonday.ports.notices import Notices
from noonday.webhooks.bounds import CallBounds

MOST = 100
"""Maximum number of preferences of one tenant."""
LONGEST_USER = 200
TEST_EVERY_MS = 60_000
_USER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
SEALED_FOR = "alert-preferences"
_read_recipient = StoredDecoder(Recipient).decode

HOW_TO = {
    ChannelType.EMAIL: "email is not configured; set email.host and email.sender (NOONDAY_EMAIL_HOST, NOONDAY_EMAIL_SENDER)",
    ChannelType.PUSH: "push is not available; use EMAIL or WEBHOOK",
}


class Seal:
    """Encrypts recipients, and seals notices so that workers can check their origin."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def close(self, to: Recipient, tenant: TenantId) -> bytes:
        return self._keyring.seal(msgspec.json.encode(to), context_of(tenant, SEALED_FOR))

    def open(self, preference: Preference) -> Recipient:
        return _read_recipient(self._keyring.open(preference.channel, context_of(preference.tenant, SEALED_FOR)))

    def seal_notice(self, notice: Notice) -> SealedNotice:
        return seal_notice(notice, self._keyring)


@dataclass(eq=False)
class PreferenceService:
    """Commands and queries of alert preferences."""

    _notices: Notices
    _channels: Channels
    _seal: Seal
    _post: NoticeJobs
    _receipts: Receipts
    _clock: Clock
    _bounds: CallBounds

    async def put(self, caller: Caller, name: str, spec: PreferenceSpec, idem: Idempotency | None) -> PreferenceView:
        """Create a preference, or replace the one with the same id.

        Raises InvalidInput with every flaw; Conflict if the channel is not configured or the tenant has the maximum number
        of preferences; Forbidden for email without scope admin.
        """
        _require_scope(caller, spec.channel)
        async with self._receipts.once(caller, idem):
            self._check(spec)
            before = await self._notices.find_preference(caller.tenant, name)
            now_ms = self._clock.now_ms()
            preference = self._preference(caller, name, spec, before.created_ms if before else now_ms, now_ms)
            view = self._view(preference)
            audit = audit_entry(caller, "alert-preference.put", name, now_ms, {"channel": spec.channel.type.value})
            receipt = self._receipts.of(caller, idem, now_ms, view) if idem else None
            if not await self._notices.put_preference(preference, MOST, audit, receipt):
                raise Conflict(f"the tenant has {MOST} alert preferences, the maximum; delete one", limit=MOST)
            return view

    async def delete(self, caller: Caller, name: str, idem: Idempotency | None) -> None:
        """Delete a preference. Events collected for it are not sent. Raises NotFound."""
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            audit = audit_entry(caller, "alert-preference.delete", name, now_ms)
            receipt = self._receipts.of(caller, idem, now_ms, None) if idem else None
            if not await self._notices.delete_preference(caller.tenant, name, audit, receipt):
                raise _missing(name)

    async def test(self, caller: Caller, name: str, idem: Idempotency | None) -> SentNotice:
        """Send a test notice as any notice is sent. Further requests within the same minute return the same notice.

        Raises NotFound; Conflict if the channel is not configured; Forbidden for email without scope admin.
        """
        async with self._receipts.once(caller, idem):
            preference = await self._find(caller, name)
            to = self._seal.open(preference)
            _require_scope(caller, to)
            self._check_channel_is_configured(to)
            now_ms = self._clock.now_ms()
            digest = Digest(f"test-{name}-{now_ms // TEST_EVERY_MS}", caller.tenant, name)
            audit = audit_entry(caller, "alert-preference.test", name, now_ms, {"notice": digest.id})

            def seal(job: JobId) -> Receipt:
                assert idem is not None
                return self._receipts.of(caller, idem, now_ms, SentNotice(digest.id, job))

            spec = job_of(digest, preference, to, now_ms, self._seal.seal_notice)
            job = await self._post.post(caller.tenant, spec, audit, seal if idem else None)
            return SentNotice(digest.id, job)

    async def get(self, caller: Caller, name: str) -> PreferenceView:
        """Return one preference. Raises NotFound."""
        return self._view(await self._find(caller, name))

    async def list_preferences(self, caller: Caller) -> list[PreferenceView]:
        """Return all preferences of the tenant, ordered by id."""
        return [self._view(preference) for preference in await self._notices.preferences([caller.tenant])]

    async def _find(self, caller: Caller, name: str) -> Preference:
        found = await self._notices.find_preference(caller.tenant, name)
        if found is None:
            raise _missing(name)
        return found

    def _check(self, spec: PreferenceSpec) -> None:
        flaws = [*_flaws_of_filters(spec), *self._flaws_of_channel(spec.channel)]
        if flaws:
            raise InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)
        self._check_channel_is_configured(spec.channel)

    def _check_channel_is_configured(self, to: Recipient) -> None:
        if to.type is not ChannelType.WEBHOOK and to.type not in self._channels:
            raise Conflict(HOW_TO[to.type], channel=to.type.value)

    def _flaws_of_channel(self, to: Recipient) -> Iterator[Flaw]:
        is_webhook = to.type is ChannelType.WEBHOOK
        own, other = ("url", "address") if is_webhook else ("address", "url")
        if getattr(to, other) is not None:
            yield Flaw(f"/channel/{other}", f"a channel of type {to.type} takes {own}, not {other}")
        if getattr(to, own) is None:
            yield Flaw(f"/channel/{own}", f"a channel of type {to.type} needs {own}")
        elif is_webhook:
            yield from self._flaws_of_url(to.url or "")
        elif to.type in self._channels and (problem := self._channels[to.type].flaw_of(to.address or "")):
            yield Flaw("/channel/address", problem, to.address)

    def _flaws_of_url(self, url: str) -> list[Flaw]:
        try:
            self._bounds.endpoint_of(url)
        except InvalidInput as bad:
            return [msgspec.structs.replace(flaw, pointer="/channel/url") for flaw in bad.flaws]
        return []

    def _preference(self, caller: Caller, name: str, spec: PreferenceSpec, created_ms: int, now_ms: int) -> Preference:
        return Preference(
            tenant=caller.tenant,
            id=name,
            user=spec.user or caller.subject,
            kinds=tuple(kind for kind in AlertKind if kind in spec.kinds),
            digest_ms=spec.digest_seconds * 1000,
            pools=tuple(dict.fromkeys(spec.pools)),
            job_ids=tuple(dict.fromkeys((*spec.task_ids, *spec.job_ids))),
            enabled=spec.enabled,
            channel=self._seal.close(spec.channel, caller.tenant),
            created_ms=created_ms,
            updated_ms=now_ms,
        )

    def _view(self, preference: Preference) -> PreferenceView:
        return PreferenceView(
            id=preference.id,
            user=preference.user,
            channel=self._seal.open(preference),
            kinds=preference.kinds,
            digest_seconds=preference.digest_ms // 1000,
            pools=preference.pools,
            job_ids=preference.job_ids,
            enabled=preference.enabled,
            created_at=instant_of(preference.created_ms),
            updated_at=instant_of(preference.updated_ms),
        )


def _flaws_of_filters(spec: PreferenceSpec) -> Iterator[Flaw]:
    if spec.user is not None and not _USER.fullmatch(spec.user):
        detail = f"must be 1 to {LONGEST_USER} characters without control characters"
        yield Flaw("/user", detail, spec.user[:LONGEST_USER])
    for index, pool in enumerate(spec.pools):
        if not is_target_name(pool):
            yield Flaw(f"/pools/{index}", "is not a valid pool name", pool[:LONGEST_USER])
    for field in ("task_ids", "job_ids"):
        for index, id_ in enumerate(getattr(spec, field)):
            if not is_id(id_):
                yield Flaw(f"/{field}/{index}", "is not an id", id_[:LONGEST_USER])


def _require_scope(caller: Caller, to: Recipient) -> None:
    """Require scope admin for email: mail comes from the operator's domain, so creating jobs must not be enough."""
    if to.type is ChannelType.EMAIL:
        caller.require("admin")


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no alert preference {name!r}")
