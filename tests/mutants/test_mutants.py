"""Mutants that are killed within seconds. `make mutants` plays all of them."""

import pytest

from tests.mutants.changing import SOURCE, CodeNotFound, constant, mutated, query, returning, wrapped
from tests.mutants.directed import DIRECTED
from tests.mutants.killing import kill
from tests.mutants.mutations import MUTANTS, Mutant
from tests.mutants.playing import KINDS

pytestmark = pytest.mark.usefixtures("no_garbage_collection")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.quick], ids=lambda mutant: mutant.name)
def test_a_quick_mutant_is_killed(mutant: Mutant) -> None:
    verdict = kill(mutant)
    assert verdict.killed_by is not None, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DIRECTED)
def test_no_promise_is_broken_in_a_directed_run(kind: str) -> None:
    broken = {seed: problems for seed in range(3) if (problems := DIRECTED[kind](seed))}
    assert not broken, f"to see one again: DIRECTED[{kind!r}]({next(iter(broken))}) in tests.mutants.directed\n{broken}"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutation_finds_its_code(mutant: Mutant) -> None:
    for change in mutant.changes:
        mutated(SOURCE / "noonday" / change.module, change)


def test_missing_code_of_a_mutation_is_reported() -> None:
    changes = (
        returning("model/firing.py", "plan_fires", "None"),
        wrapped("model/firing.py", "Planner.plan_fire"),
        constant("model/firing.py", "MISFIRES_MS", "0"),
        query("drivers/sqlite/sql/jobs.sql", "jobb", "tenant", "id"),
        returning("model/misfiring.py", "plan_fire", "None"),
    )
    for change in changes:
        with pytest.raises(CodeNotFound):
            mutated(SOURCE / "noonday" / change.module, change)


def test_each_kind_of_run_exists() -> None:
    assert {mutant.kind for mutant in MUTANTS} <= KINDS.keys()
    assert DIRECTED.keys() <= {mutant.kind for mutant in MUTANTS}


def test_names_are_unique_and_there_are_at_least_thirty() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 30
