import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.crypto.envelope import context_of, head_of, key_id_of, new_nonce, read_head
from noonday.model.errors import BadKey

pairs = st.tuples(st.text(alphabet="ab:0\x001", max_size=4), st.text(alphabet="ab:0\x001", max_size=4))


@pytest.mark.slow
@given(pairs, pairs)
def test_two_tenants_or_jobs_never_share_a_context(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (context_of(*one) == context_of(*other)) == (one == other)


@pytest.mark.slow
@given(st.text(alphabet="abk019_-", min_size=1, max_size=32), st.binary(min_size=28, max_size=40))
def test_the_key_id_is_read_from_the_envelope(key_id: str, rest: bytes) -> None:
    assert key_id_of(head_of(key_id) + rest) == key_id
    assert read_head(head_of(key_id) + rest) == head_of(key_id)


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01\x05ab", head_of("k1") + bytes(27)])
def test_text_too_short_for_an_envelope_is_refused(sealed: bytes) -> None:
    with pytest.raises(BadKey, match=f"cut short: {len(sealed)} bytes"):
        key_id_of(sealed)


def test_an_envelope_of_a_later_release_is_refused_by_its_version() -> None:
    with pytest.raises(BadKey, match="version 2 is unknown; this release reads version 1"):
        key_id_of(b"\x02" + head_of("k1")[1:] + bytes(40))


def test_nonces_have_96_bits_and_do_not_repeat_across_draws() -> None:
    nonces = [new_nonce() for _ in range(5_000)]
    assert {len(nonce) for nonce in nonces} == {12}
    assert len(set(nonces)) == len(nonces)


def test_threads_never_get_the_same_nonce() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: [new_nonce() for _ in range(2_000)], range(8)))
    assert len({nonce for nonces in drawn for nonce in nonces}) == 16_000


# In a process of its own: Python warns of a fork of a process with threads, such as a test runner.
FORKING = """
import os
from noonday.crypto.envelope import new_nonce
new_nonce()
child = os.fork()
nonces = [new_nonce().hex() for _ in range(100)]
if child:
    os.waitpid(child, 0)
os.write(1, "\\n".join(nonces + [""]).encode())
"""


@pytest.mark.slow
def test_a_forked_child_does_not_use_its_parents_nonces() -> None:
    answer = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    nonces = answer.stdout.split()
    assert len(nonces) == len(set(nonces)) == 200
