"""CPU-bound handlers in separate processes, which do not slow down other handlers and can be killed.

A handler with `process=True` is a plain function at module level. Its processes import the module again, so the code that
starts the program must be under `if __name__ == "__main__":`.
"""

import asyncio
import os

from noonday import Context, Noonday

app = Noonday()


@app.handler("count_primes", pool="numbers", process=True, timeout=60)
def count_primes(ctx: Context, payload: int) -> dict[str, int]:
    """Count the primes below a number by trial division."""
    found = 0
    for number in range(2, payload):
        ctx.raise_if_cancelled()
        found += all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    return {"below": payload, "primes": found, "process": os.getpid()}


async def main() -> None:
    async with app.embedded("numbers.db", worker_processes=2):
        jobs = [await app.enqueue(count_primes, limit) for limit in (100, 1_000, 10_000)]
        results = [await app.result(job, timeout=30) for job in jobs]
    for result in results:
        print(f"{result['primes']} primes below {result['below']}")
    print("in other processes:", all(result["process"] != os.getpid() for result in results))


if __name__ == "__main__":
    asyncio.run(main())
