"""Capacities that follow from the options of a worker."""

from noonday.model.handler import Handler, Mode
from noonday.worker.options import WorkerOptions, limit_of, runnable_concurrency

OPTIONS = WorkerOptions(concurrency={"p": 10}, threads=3, processes=2)


def concurrency_of(*modes: Mode, options: WorkerOptions = OPTIONS) -> int:
    handlers = {("p", mode.value): Handler(mode.value, "p", print, mode) for mode in modes}
    return runnable_concurrency(options, handlers)["p"]


def test_a_pool_of_coroutines_keeps_its_concurrency() -> None:
    assert concurrency_of(Mode.ASYNC) == 10


def test_a_pool_of_functions_has_as_many_slots_as_threads_and_processes() -> None:
    assert concurrency_of(Mode.THREAD) == 3
    assert concurrency_of(Mode.THREAD, Mode.PROCESS) == 5


def test_a_pool_with_a_coroutine_keeps_its_concurrency() -> None:
    assert concurrency_of(Mode.THREAD, Mode.ASYNC) == 10


def test_no_processes_are_no_limit_because_the_host_names_the_setting() -> None:
    assert limit_of(Mode.PROCESS, WorkerOptions(concurrency={}, processes=0)) is None
