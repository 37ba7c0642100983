"""The actors of Dramatiq's processes."""

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from speak import Notes

broker = RedisBroker(url=os.environ["BENCH_STORE"])
dramatiq.set_broker(broker)
_notes: list[Notes] = []


@dramatiq.actor(actor_name="note")
def note(number: int, wait_ms: int = 0) -> None:
    if not _notes:
        _notes.append(Notes(os.environ["BENCH_NOTES"], True))  # one in each process
    _notes[0].start(number)
    if wait_ms:
        time.sleep(wait_ms / 1000)
        _notes[0].end(number)
