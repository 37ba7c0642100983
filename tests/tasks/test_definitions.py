"""Definitions of tasks as they were when their executions fired."""

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.presenters import Presenter
from noonday.model.execution import Execution
from noonday.model.job import JobState
from noonday.model.rows import Definition
from noonday.model.tasks.wire import HANDLER, POOL
from noonday.tasks.definitions import TaskDefinitions, endpoint_of_url
from tests.support.factories import TENANT, execution

KEYRING = Keyring.generate()
URL = "https://api.example.com/reports"


def kept(row: Execution, **said: object) -> TaskDefinitions:
    """Return the definition of one execution, by default that of a task."""
    payload = KEYRING.seal(b'{"webhook_url":"%s"}' % URL.encode(), context_of(TENANT, row.job_id))
    usual = {
        "name": "nightly",
        "state": JobState.ACTIVE,
        "pool": POOL,
        "handler": HANDLER,
        "endpoint": "https://api.example.com:443",
        "revision": row.revision,
        "payload": payload,
    }
    definition = Definition(**{**usual, **said})  # type: ignore[arg-type]
    return TaskDefinitions(Presenter(KEYRING, None), TENANT, {(row.job_id, row.revision): definition})


def test_definition_has_the_name_and_the_url_of_its_task() -> None:
    row = execution()
    assert kept(row).name_of(row) == "nightly"
    assert kept(row).url_of(row) == URL


def test_execution_of_another_revision_or_job_has_no_definition_here() -> None:
    row = execution()
    assert kept(row).find(execution()) is None
    assert kept(row).url_of(execution()) is None


def test_job_without_a_webhook_is_no_task() -> None:
    row = execution()
    for other in ({"pool": "etl"}, {"handler": "load"}, {"endpoint": None}):
        assert kept(row, **other).find(row) is None


def test_deleted_task_is_readable_and_not_live() -> None:
    row = execution()
    deleted = kept(row, state=JobState.CANCELLED)
    assert deleted.name_of(row) == "nightly"
    assert deleted.find_live(row) is None


def test_url_that_cannot_be_decrypted_is_unknown() -> None:
    row = execution()
    assert kept(row, payload=b"sealed with another key").url_of(row) is None


def test_endpoint_of_a_url_is_its_scheme_host_and_port() -> None:
    assert endpoint_of_url(URL) == "https://api.example.com:443"
    assert endpoint_of_url(None) is None
