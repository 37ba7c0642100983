"""`make mutants`: the named invariant or property must kill every mutant. Arguments select mutants by name."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.mutants.killing import kill
from tests.mutants.mutations import MUTANTS


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    if unknown := set(names) - {mutant.name for mutant in chosen}:
        print(f"no mutant {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    survived = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for playing in as_completed([pool.submit(kill, mutant, compare=True) for mutant in chosen]):
            verdict = playing.result()
            survived += verdict.killed_by is None
            print(verdict, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutants killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
