"""The application of Celery's processes."""

import os
import time

from celery import Celery
from celery.schedules import crontab
from speak import Notes

app = Celery("tasks", broker=os.environ["BENCH_STORE"])
app.conf.task_ignore_result = True
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.broker_transport_options = {"visibility_timeout": 3600}
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = {
    f"c{number}": {"task": "note", "schedule": crontab(), "args": (number,)}
    for number in range(int(os.environ.get("BENCH_CRONS", "0")))
}
_notes: list[Notes] = []


@app.task(name="note")
def note(number: int, wait_ms: int = 0) -> None:
    if not _notes:
        _notes.append(Notes(os.environ["BENCH_NOTES"], True))  # one in each process
    _notes[0].start(number)
    if wait_ms:
        time.sleep(wait_ms / 1000)
        _notes[0].end(number)
