"""Layout of sealed bytes: version, length of the key id, key id, nonce, ciphertext and tag."""

import os

from noonday.model.errors import BadKey

VERSION = 1
NONCE_BYTES = 12
TAG_BYTES = 16

_NONCES_PER_DRAW = 1024


def context_of(tenant: str, job_id: str) -> bytes:
    """Return the context that binds sealed bytes to one tenant and job: they open for these only."""
    # The length keeps ("a", "b:c") and ("a:b", "c") apart.
    return f"{len(tenant)}:{tenant}:{job_id}".encode()


def head_of(key_id: str) -> bytes:
    """Return the bytes that every envelope sealed with this key begins with."""
    name = key_id.encode()
    return bytes((VERSION, len(name))) + name


def read_head(sealed: bytes) -> bytes:
    """Return the part before the nonce. Bytes too short to contain one are returned as they are."""
    return sealed[: 2 + sealed[1]] if len(sealed) > 1 else sealed


def key_id_of(sealed: bytes) -> str:
    """Return the id of the key that opens an envelope. Raises BadKey if this release cannot read the envelope."""
    head = read_head(sealed)
    if head and head[0] != VERSION:
        raise BadKey(f"envelope version {head[0]} is unknown; this release reads version {VERSION}")
    if len(sealed) < len(head) + NONCE_BYTES + TAG_BYTES:
        raise BadKey(f"the envelope is cut short: {len(sealed)} bytes cannot hold key id, nonce and tag")
    return head[2:].decode(errors="replace")


def new_nonce() -> bytes:
    """Return 96 random bits. Nonces are drawn 1,024 at a time: one system call per nonce would make sealing 50 % more
    expensive."""
    try:
        return _unused.pop()
    except IndexError:
        return _draw()


def _draw() -> bytes:
    block = os.urandom(NONCE_BYTES * _NONCES_PER_DRAW)
    nonces = [block[at : at + NONCE_BYTES] for at in range(0, len(block), NONCE_BYTES)]
    first = nonces.pop()
    _unused.extend(nonces)
    return first


# `list.pop` and `list.extend` are atomic, so threads share the list without a lock. A forked child must not use the nonces
# that its parent is going to use.
_unused: list[bytes] = []
os.register_at_fork(after_in_child=_unused.clear)
