"""Plays random simulation runs of one mutant until the checker reports it. Run in a process of its own, with the mutant's source
first on PYTHONPATH: `python -m tests.mutants.playing KIND FIRST MOST WORDS...`."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

import noonday
from tests.mutants.directed import DIRECTED
from tests.simulation import test_cluster, test_embedded, test_notifications
from tests.simulation.kernel import SimulationError

KINDS: dict[str, Callable[[int], list[str]]] = {
    "embedded": test_embedded.simulate,
    "notifications": test_notifications.simulate,
    "cluster": test_cluster.simulate,
    **{focus: partial(test_cluster.simulate, focus=focus) for focus in test_cluster.FOCUS},
    **DIRECTED,
}


def play(kind: str, first: int, most: int, words: frozenset[str]) -> dict[str, object]:
    """Play runs until one of the words is reported, at most `most` of them. Return the result."""
    run = KINDS[kind]
    seen: Counter[str] = Counter()
    example = ""
    for number in range(most):
        try:
            problems = run(first + number)
        except SimulationError as error:
            problems = [f"{type(error).__name__}: {str(error)[:300]}"]
        for problem in problems:
            word = problem.partition(":")[0]
            seen[word] += 1
            example = example or problem[:300]
            if word in words:
                return {"by": word, "runs": number + 1, "seed": first + number, "problem": problem[:300]}
    return {"by": None, "runs": most, "seen": dict(seen), "problem": example}


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    kind, first, most, *words = sys.argv[1:]
    begun = time.monotonic()
    answer = play(kind, int(first), int(most), frozenset(words))
    print(json.dumps({**answer, "sec": round(time.monotonic() - begun, 1), "source": noonday.__file__}))


if __name__ == "__main__":
    main()
