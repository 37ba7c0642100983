"""Ids and partitions. Ids of jobs and executions are canonical UUID text, so that they sort by time in every store."""

import re
from hashlib import blake2b
from typing import NewType

import uuid_utils
import xxhash

JobId = NewType("JobId", str)
ExecutionId = NewType("ExecutionId", str)
TenantId = NewType("TenantId", str)
WorkerId = NewType("WorkerId", str)
InstanceId = NewType("InstanceId", str)

PARTITIONS = 256
_48_BITS = (1 << 48) - 1
FIRST_ID = "00000000-0000-0000-0000-000000000000"
"""Sorts before the id of every job and execution."""
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Sorts after the id of every job and execution."""
_CANONICAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_job_id() -> JobId:
    return JobId(str(uuid_utils.uuid7()))


def new_worker_id() -> WorkerId:
    """Return a fresh worker id. A worker gets a new one at every start."""
    return WorkerId(f"w-{uuid_utils.uuid7().hex[:20]}")


def execution_id(job_id: JobId, nominal_ms: int, discriminator: str = "") -> ExecutionId:
    """Return the id of an occurrence's execution: 48 bits of time, then a hash, formatted as a UUID of version 8.

    The id depends only on the arguments. Firing an occurrence twice therefore collides on the primary key.
    """
    digest = blake2b(f"{job_id}|{nominal_ms}|{discriminator}".encode(), digest_size=10).hexdigest()
    time = f"{nominal_ms & _48_BITS:012x}"
    return ExecutionId(f"{time[:8]}-{time[8:]}-8{digest[:3]}-a{digest[3:6]}-{digest[6:18]}")


def child_job_id(execution: ExecutionId, key: str) -> JobId:
    """Return the id of a job that an execution enqueues under a key: of version 7, with the time of the execution's id."""
    digest = blake2b(f"child|{execution}|{key}".encode(), digest_size=10).hexdigest()
    return JobId(f"{execution[:13]}-7{digest[:3]}-b{digest[3:6]}-{digest[6:18]}")


def discriminator(kind: str, key: str) -> str:
    """Return the discriminator of a trigger or backfill, which keeps it apart from the fire of the same nominal time."""
    return f"{kind}:{blake2b(key.encode(), digest_size=8).hexdigest()}"


def partition_of(job_id: JobId) -> int:
    """Return the partition of the timeline that a job belongs to. It never changes."""
    return xxhash.xxh3_64_intdigest(job_id.encode()) % PARTITIONS


def stable_fraction(text: str) -> float:
    """Return a number in [0, 1) that depends only on `text`, for spread and jitter that survive a restart."""
    return xxhash.xxh3_64_intdigest(text.encode()) / 2**64


def first_id_at(ms: int) -> str:
    """Return an id that sorts before those of an instant and after those of earlier instants."""
    time = f"{min(max(0, ms), _48_BITS):012x}"
    return f"{time[:8]}-{time[8:]}{FIRST_ID[13:]}"


def is_id_prefix(text: str) -> bool:
    """Return whether a text is the beginning of ids, or an id."""
    return is_id(text + FIRST_ID[len(text) :])


def bounds_of_prefix(prefix: str) -> tuple[str, str]:
    """Return the first id with a prefix, and the id after the last one."""
    last = int((prefix + LAST_ID[len(prefix) :]).replace("-", ""), 16)
    digits = f"{min(last + 1, (1 << 128) - 1):032x}"
    after = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return prefix + FIRST_ID[len(prefix) :], after


def is_id(text: str) -> bool:
    """Return whether a text is a valid id. Each id has one spelling."""
    return _CANONICAL.fullmatch(text) is not None
