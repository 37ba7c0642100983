"""Work that keeps a processor busy, in processes of its own: it slows nobody down, and it can be killed.

A handler with `process=True` is a plain function at the top of a module. Its processes load the module again, so
whatever the program does when it is started stands under `if __name__ == "__main__":`.
"""

import asyncio
import os

from noonday import Context, Noonday

app = Noonday()


@app.handler("count_primes", pool="numbers", process=True, timeout=60)
def count_primes(ctx: Context, payload: int) -> dict[str, int]:
    """How many primes there are below a number, the slow way."""
    found = 0
    for number in range(2, payload):
        ctx.raise_if_cancelled()
        found += all(number % divisor for divisor in range(2, int(number**0.5) + 1))
    return {"below": payload, "primes": found, "process": os.getpid()}


async def main() -> None:
    async with app.embedded("numbers.db", worker_processes=2):
        jobs = [await app.enqueue(count_primes, limit) for limit in (100, 1_000, 10_000)]
        answers = [await app.result(job, timeout=30) for job in jobs]
    for answer in answers:
        print(f"{answer['primes']} primes below {answer['below']}")
    print("elsewhere:", all(answer["process"] != os.getpid() for answer in answers))


if __name__ == "__main__":
    asyncio.run(main())
