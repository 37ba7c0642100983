import json
import os
import re
import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.crypto.envelope import context_of, key_id_of
from noonday.crypto.keyring import Keyring, load_or_create, rotate
from noonday.model.errors import BadKey, BadSettings

CONTEXT = context_of("acme", "job-1")
KEY_1 = b64encode(b"1" * 32).decode()
KEY_2 = b64encode(b"2" * 32).decode()

RING = Keyring("k1", {"k1": b"1" * 32, "k2": b"2" * 32})


@pytest.mark.slow
@given(st.binary(max_size=300))
def test_sealed_bytes_open_to_the_same_bytes(plain: bytes) -> None:
    sealed = RING.seal(plain, CONTEXT)
    assert RING.open(sealed, CONTEXT) == plain
    assert len(sealed) == len(plain) + 2 + 2 + 12 + 16


def test_sealing_twice_gives_different_bytes() -> None:
    assert RING.seal(b"same", CONTEXT) != RING.seal(b"same", CONTEXT)


@pytest.mark.slow
@given(st.data())
def test_altering_any_one_byte_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(RING.seal(b"a payload", CONTEXT))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadKey):
        RING.open(bytes(sealed), CONTEXT)


@given(st.integers(0, 40))
def test_a_cut_envelope_is_noticed(length: int) -> None:
    with pytest.raises(BadKey):
        RING.open(RING.seal(b"a payload", CONTEXT)[:length], CONTEXT)


@pytest.mark.slow
@given(st.binary(max_size=80))
def test_bytes_that_are_no_envelope_raise_bad_key_only(noise: bytes) -> None:
    with pytest.raises(BadKey):
        RING.open(noise, CONTEXT)


@pytest.mark.parametrize("context", [context_of("acme", "job-2"), context_of("other", "job-1"), b""])
def test_another_tenant_or_job_cannot_open_it(context: bytes) -> None:
    with pytest.raises(BadKey, match=r"'k1' does not open the envelope.*another tenant or job"):
        RING.open(RING.seal(b"x", CONTEXT), context)


def test_a_key_that_is_not_there_is_named_with_those_that_are() -> None:
    sealed = Keyring("k9", {"k9": b"9" * 32}).seal(b"x", CONTEXT)
    with pytest.raises(BadKey, match=r"key 'k9', which is not in the keyring \(it has k1, k2\)"):
        RING.open(sealed, CONTEXT)


def test_another_key_under_the_same_id_does_not_open_it() -> None:
    sealed = Keyring("k1", {"k1": b"9" * 32}).seal(b"x", CONTEXT)
    with pytest.raises(BadKey, match="another key with this id sealed it"):
        RING.open(sealed, CONTEXT)


def test_printing_a_keyring_shows_ids_and_no_key() -> None:
    assert repr(RING) == "Keyring(current='k1', key_ids=('k1', 'k2'))"


def test_generated_keyrings_do_not_open_each_other() -> None:
    sealed = Keyring.generate().seal(b"x", CONTEXT)
    with pytest.raises(BadKey, match="not in the keyring"):
        Keyring.generate().open(sealed, CONTEXT)


def test_the_first_key_of_the_environment_seals_and_all_open() -> None:
    ring = Keyring.from_env_value(f" k2:{KEY_2} , k1:{KEY_1},")
    assert ring.current == "k2"
    assert key_id_of(ring.seal(b"x", CONTEXT)) == "k2"
    assert ring.open(RING.seal(b"old", CONTEXT), CONTEXT) == b"old"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no key found"),
        (" , ", "no key found"),
        (KEY_1, "entry 1 is not id:base64"),
        (f"k1:{KEY_1},k 2:{KEY_2}", "entry 2 is not id:base64"),
        ("k1:", "entry 1 is not id:base64"),
        ("k1:not base64!", "key 'k1' is not base64"),
        (f"k1:{b64encode(b'short').decode()}", "key 'k1' has 5 bytes, AES-256 needs 32"),
        (f"k1:{KEY_1},k1:{KEY_2}", "key 'k1' is given twice"),
    ],
)
def test_bad_keys_in_the_environment_are_explained_without_showing_them(text: str, complaint: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(complaint)) as caught:
        Keyring.from_env_value(text)
    assert "NOONDAY_KEYS" in caught.value.detail
    assert KEY_1 not in caught.value.detail


def test_the_key_file_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db.keys"
    sealed = load_or_create(path).seal(b"x", CONTEXT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create(path).open(sealed, CONTEXT) == b"x"
    assert os.listdir(tmp_path) == [path.name]


def test_concurrent_creation_of_the_key_file_makes_one_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with ThreadPoolExecutor(8) as pool:
        rings = list(pool.map(lambda _: load_or_create(path), range(16)))
    assert len({ring.current for ring in rings}) == 1
    assert os.listdir(tmp_path) == ["keys"]


def test_after_a_rotation_the_new_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    old = load_or_create(path)
    sealed = old.seal(b"old", CONTEXT)
    new_id = rotate(path)
    ring = load_or_create(path)
    assert ring.current == new_id != old.current
    assert key_id_of(ring.seal(b"x", CONTEXT)) == new_id
    assert ring.open(sealed, CONTEXT) == b"old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_rotations_that_race_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = load_or_create(path).current
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda _: rotate(path), range(16)))
    assert set(load_or_create(path).key_ids) == {first, *added}
    assert os.listdir(tmp_path) == ["keys"]


def test_rotating_through_a_symbolic_link_keeps_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "keys")
    load_or_create(tmp_path / "keys")
    new_id = rotate(link)
    assert link.is_symlink()
    assert load_or_create(tmp_path / "keys").current == new_id


def test_a_key_file_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    load_or_create(path)
    path.chmod(0o640)
    for act in (load_or_create, rotate):
        with pytest.raises(BadSettings, match=rf"\(mode 0640\); run: chmod 600 {re.escape(str(path))}"):
            act(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "Input data was truncated"),
        ('{"current": "k1"}', "missing required field `keys`"),
        ('{"current": "k1", "keys": {}}', "current is 'k1', but the keys are none"),
        (json.dumps({"current": "k2", "keys": {"k1": KEY_1}}), "current is 'k2', but the keys are k1"),
        (json.dumps({"current": "k1", "keys": {"k1": "AAAA"}}), "key 'k1' has 3 bytes"),
        (json.dumps({"current": "k1", "keys": {"k1": "?"}}), "key 'k1' is not base64"),
    ],
)
def test_broken_key_file_is_reported_with_its_flaw_and_left_unchanged(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    path.chmod(0o600)
    for act in (load_or_create, rotate):
        with pytest.raises(BadSettings, match=re.escape(complaint)) as caught:
            act(path)
        assert str(path) in caught.value.detail
    assert path.read_text() == content


def test_a_key_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(BadSettings, match=f"cannot read {path}: it is not text"):
        load_or_create(path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"cannot create .*/nowhere/keys: No such file"):
        load_or_create(tmp_path / "nowhere" / "keys")


def test_rotation_of_a_missing_file_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"cannot change .*keys: No such file"):
        rotate(tmp_path / "keys")
    assert os.listdir(tmp_path) == []
