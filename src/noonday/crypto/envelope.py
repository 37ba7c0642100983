"""How sealed bytes are laid out: version, length of the key's id, the id, a nonce, then ciphertext and tag."""

import os

from noonday.model.errors import BadKey

VERSION = 1
NONCE_BYTES = 12
TAG_BYTES = 16

_NONCES_A_DRAW = 1024


def context_of(tenant: str, job_id: str) -> bytes:
    """What sealed bytes are bound to: they open for this tenant and job only."""
    # The length keeps ("a", "b:c") and ("a:b", "c") apart.
    return f"{len(tenant)}:{tenant}:{job_id}".encode()


def head_of(key_id: str) -> bytes:
    """What every envelope sealed with this key begins with."""
    name = key_id.encode()
    return bytes((VERSION, len(name))) + name


def read_head(sealed: bytes) -> bytes:
    """The part in front of the nonce; of bytes too short to have one, as much as there is."""
    return sealed[: 2 + sealed[1]] if len(sealed) > 1 else sealed


def key_id_of(sealed: bytes) -> str:
    """The id of the key that opens this. Raises BadKey if it is no envelope that this release reads."""
    head = read_head(sealed)
    if head and head[0] != VERSION:
        raise BadKey(f"envelope version {head[0]} is unknown; this release reads version {VERSION}")
    if len(sealed) < len(head) + NONCE_BYTES + TAG_BYTES:
        raise BadKey(f"the envelope is cut short: {len(sealed)} bytes cannot hold key id, nonce and tag")
    return head[2:].decode(errors="replace")


def new_nonce() -> bytes:
    """96 random bits. Drawn a thousand at a time: a system call each would make sealing half as dear again."""
    try:
        return _fresh.pop()
    except IndexError:
        return _draw()


def _draw() -> bytes:
    block = os.urandom(NONCE_BYTES * _NONCES_A_DRAW)
    nonces = [block[at : at + NONCE_BYTES] for at in range(0, len(block), NONCE_BYTES)]
    first = nonces.pop()
    _fresh.extend(nonces)
    return first


# Popping from a list and extending it are atomic, so threads share it without a lock. A forked child
# must not use the nonces its parent is going to use.
_fresh: list[bytes] = []
os.register_at_fork(after_in_child=_fresh.clear)
