"""Names of things. Ids are canonical UUID text, so that they sort by time in every store."""

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
_CANONICAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_job_id() -> JobId:
    return JobId(str(uuid_utils.uuid7()))


def new_worker_id() -> WorkerId:
    """An identity that is fresh at every start."""
    return WorkerId(f"w-{uuid_utils.uuid7().hex[:20]}")


def execution_id(job_id: JobId, nominal_ms: int, discriminator: str = "") -> ExecutionId:
    """The one id an occurrence can have: 48 bits of time, then a hash, laid out as a UUID of version 8.

    Firing an occurrence twice therefore collides on the primary key instead of running twice.
    """
    digest = blake2b(f"{job_id}|{nominal_ms}|{discriminator}".encode(), digest_size=10).hexdigest()
    time = f"{nominal_ms & _48_BITS:012x}"
    return ExecutionId(f"{time[:8]}-{time[8:]}-8{digest[:3]}-a{digest[3:6]}-{digest[6:18]}")


def discriminator(kind: str, key: str) -> str:
    """What tells a trigger or a backfill from the real fire of the same nominal time."""
    return f"{kind}:{blake2b(key.encode(), digest_size=8).hexdigest()}"


def partition_of(job_id: JobId) -> int:
    """The slice of the timeline a job lives in, for ever."""
    return xxhash.xxh3_64_intdigest(job_id.encode()) % PARTITIONS


def stable_fraction(text: str) -> float:
    """A number in [0, 1) that depends on `text` alone: for spread and jitter that survive a restart."""
    return xxhash.xxh3_64_intdigest(text.encode()) / 2**64


def is_id(text: str) -> bool:
    """Whether a text can be an id. Each has one spelling."""
    return _CANONICAL.fullmatch(text) is not None
