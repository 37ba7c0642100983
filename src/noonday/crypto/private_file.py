"""Small files that only their owner may read: written whole or not at all, and never lost to a race."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

from noonday.model.errors import BadSettings


def read_private(path: Path) -> str:
    """The text of a file that nobody else can read; BadSettings if it is missing, unreadable or open to others."""
    with _naming(path, "read"), path.open("rb") as file:
        _refuse_if_others_can_read(path, os.fstat(file.fileno()).st_mode)
        return file.read().decode()


def read_or_create_private(path: Path, make: Callable[[], str]) -> str:
    """The text of the file, made by `make` if there is none. Of processes that race, all read what the first wrote."""
    if not path.exists():
        _create(path, make())
    return read_private(path)


def change_private(path: Path, change: Callable[[str], str]) -> None:
    """Replace the text by `change` of it. Concurrent changes are applied one after the other; none is lost."""
    target = path.resolve()
    with _naming(path, "change"), _locked(target):
        with _written_beside(target, change(read_private(target))) as written:
            os.replace(written, target)
        _sync_directory(target.parent)


def _create(path: Path, text: str) -> None:
    # A link, unlike a rename, fails if the name is taken: that is what lets the first one win.
    with _naming(path, "create"), _written_beside(path, text) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            return
        _sync_directory(path.parent)


@contextmanager
def _naming(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadSettings(f"cannot {verb} {path}: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"cannot {verb} {path}: it is not text", path=str(path)) from error


def _refuse_if_others_can_read(path: Path, mode: int) -> None:
    if mode & 0o077:
        raise BadSettings(
            f"{path} is open to other users (mode {mode & 0o777:04o}); run: chmod 600 {path}", path=str(path)
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file that bears the name now: whoever waited for a replaced one takes the next."""
    while True:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[str]:
    handle, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
