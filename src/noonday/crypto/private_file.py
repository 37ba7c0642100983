"""Small files that only their owner may read. They are written whole or not at all, and no concurrent change is lost."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

from noonday.model.errors import BadSettings


def read_private(path: Path) -> str:
    """Return the text of a private file. Raises BadSettings if it is missing, unreadable or open to other users."""
    with _errors_naming(path, "read"), path.open("rb") as file:
        _refuse_if_others_can_read(path, os.fstat(file.fileno()).st_mode)
        return file.read().decode()


def read_or_create_private(path: Path, make: Callable[[], str]) -> str:
    """Return the text of the file, created from `make()` if there is none. Processes that race all read the first one's text."""
    if not path.exists():
        _create(path, make())
    return read_private(path)


def change_private(path: Path, change: Callable[[str], str]) -> None:
    """Replace the text with `change(text)`. Concurrent changes are applied one after the other; none is lost."""
    target = path.resolve()
    with _errors_naming(path, "change"), _locked(target):
        with _temporary_file(target, change(read_private(target))) as written:
            os.replace(written, target)
        _sync_directory(target.parent)


def _create(path: Path, text: str) -> None:
    # A link, unlike a rename, fails if the name is taken, so the first process wins.
    with _errors_naming(path, "create"), _temporary_file(path, text) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            return
        _sync_directory(path.parent)


@contextmanager
def _errors_naming(path: Path, verb: str) -> Iterator[None]:
    """Translate errors of the block to BadSettings with the path."""
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
    """Lock the file that has the name now. A process that waited for a replaced file locks the new one."""
    while True:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


@contextmanager
def _temporary_file(path: Path, text: str) -> Iterator[str]:
    """Write a temporary file in the same directory. Yields its name, and removes it at the end."""
    descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
