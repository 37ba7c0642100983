"""Drafts: a spec with its defaults, before it is stored."""

from typing import Any

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.sqlite.store import SqliteStore
from noonday.intake.catalogue import Catalogue
from noonday.intake.drafts import CreationContext, Draft, Drafter, admitted, all_flaws, valid_drafts
from noonday.intake.payloads import Payloads
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import QuotaReservation, Quotas
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput, NoondayError, QuotaExceeded, StoreUnavailable
from noonday.model.ids import TenantId
from noonday.model.job import JobSpec, Target
from noonday.model.limits import Sizes
from noonday.model.view import TenantSettings
from tests.api.engine import Backstage
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, every, job_id, spec

ANN = Caller(TenantId("acme"), "ann", frozenset({"write"}))
KEYRING = Keyring.generate()
PRESENTER = Presenter(KEYRING, None)
DEMO = Target("demo", "demo.echo")


class Away(Catalogue):
    """A catalogue whose store is away."""

    async def check(self, spec: JobSpec) -> tuple[str, ...]:
        raise StoreUnavailable("the store is away")


def drafter_on(store: SqliteStore, kind: type[Catalogue] = Catalogue) -> Drafter:
    clock = ManualClock()
    return Drafter(
        catalogue=kind(store.settings_store, clock),
        quotas=Quotas(store.query_store, store.settings_store, clock),
        payloads=Payloads(KEYRING, Sizes()),
        presenter=PRESENTER,
        new_id=job_id,
    )


@pytest.fixture
def drafter(backstage: Backstage) -> Drafter:
    return drafter_on(backstage.store)


def context_of(**settings: Any) -> CreationContext:
    return CreationContext(ANN, NOW_MS, None, TenantSettings(**settings), None)


async def draft_of(drafter: Drafter, wanted: JobSpec, **settings: Any) -> Draft:
    draft = await drafter.draft(context_of(**settings), wanted)
    assert isinstance(draft, Draft)
    return draft


async def test_draft_has_an_encrypted_payload_and_a_first_fire(drafter: Drafter) -> None:
    draft = await draft_of(drafter, spec(target=DEMO, payload={"hello": 1}))
    job, fire = draft.new.job, draft.new.fire
    assert job.spec.payload is None
    assert PRESENTER.open(job.payload, job.tenant, job.id) == {"hello": 1}
    assert fire is not None
    assert fire.due_ms == NOW_MS


async def test_invalid_spec_becomes_its_error(drafter: Drafter) -> None:
    assert isinstance(await drafter.draft(context_of(), spec(target=Target("nowhere", "x"))), InvalidInput)


async def test_unavailable_store_is_no_flaw_of_the_job(backstage: Backstage) -> None:
    with pytest.raises(StoreUnavailable):
        await drafter_on(backstage.store, Away).draft(context_of(), spec(target=DEMO))


async def test_specs_keep_their_order_and_errors_pass_through(drafter: Drafter) -> None:
    malformed = InvalidInput.of("/type", "unknown type")
    drafts = await drafter.draft_each(context_of(), [spec(target=DEMO), malformed, spec(target=DEMO)])
    assert [isinstance(each, Draft) for each in drafts] == [True, False, True]
    assert drafts[1] is malformed


async def test_default_spread_of_the_tenant_is_noted(drafter: Drafter) -> None:
    draft = await draft_of(drafter, every(60, target=DEMO), default_spread_sec=30)
    assert (draft.new.job.spec.spread_sec, draft.has_default_spread) == (30, True)


async def test_unchanged_payload_of_an_existing_job_keeps_its_ciphertext(drafter: Drafter) -> None:
    present = (await draft_of(drafter, spec(target=DEMO, payload=1))).new.job
    new = (await draft_of(drafter, spec(target=DEMO, payload=1))).new.job
    assert drafter.for_existing(present, new, has_default_spread=False).payload == present.payload


async def test_changed_payload_is_encrypted_for_the_existing_job(drafter: Drafter) -> None:
    present = (await draft_of(drafter, spec(target=DEMO, payload=1))).new.job
    new = (await draft_of(drafter, spec(target=DEMO, payload=2))).new.job
    update = drafter.for_existing(present, new, has_default_spread=False)
    assert PRESENTER.open(update.payload, present.tenant, present.id) == 2


async def test_new_default_spread_does_not_move_an_existing_job(drafter: Drafter) -> None:
    present = (await draft_of(drafter, every(60, target=DEMO))).new.job
    new = (await draft_of(drafter, every(60, target=DEMO), default_spread_sec=30)).new.job
    assert drafter.for_existing(present, new, has_default_spread=True).spec == present.spec


async def test_drafts_beyond_the_quota_become_its_refusal(drafter: Drafter) -> None:
    flaw: NoondayError = InvalidInput.of("/type", "unknown type")
    drafts = await drafter.draft_each(context_of(), [spec(target=DEMO), flaw, spec(target=DEMO)])
    why = QuotaExceeded("no room", limit=1, used=0, retryAfterSec=1)
    assert admitted(drafts, QuotaReservation(refused=[1], why=why)) == [drafts[0], flaw, why]
    assert len(valid_drafts(drafts)) == 2


def test_flaws_of_a_batch_name_the_position_of_their_job() -> None:
    flaws = all_flaws([InvalidInput.of("/type", "unknown type"), InvalidInput.of("/name", "too long")]).flaws
    assert [flaw.pointer for flaw in flaws] == ["/jobs/0/type", "/jobs/1/name"]
