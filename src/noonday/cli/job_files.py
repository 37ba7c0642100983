"""Files of jobs: what `noonday job apply` reads, and what `noonday job export` and `noonday import` write.

A file is one job, or `{"set": NAME, "jobs": [...]}`. A job has the members of the API.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from noonday.cli.yaml_text import dump, load_all
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import Flaw, InvalidInput, NotFound
from noonday.model.job import JobSpec

MOST_FILES = 1_000
MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of all files together."""
MOST_JOBS = 5_000
SUFFIXES = (".yaml", ".yml", ".json")
OF_FILES = "apply:"
"""Prefix of the tag that names the set of files which a job comes from, and of the unique keys that `apply` gives."""
_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_decode_spec = BodyDecoder(JobSpec)


class FileOfJobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file with several jobs."""

    jobs: list[dict[str, Any]]
    set: str | None = None


class WantedJob(NamedTuple):
    """A job of a file."""

    spec: JobSpec
    place: str
    """File, and position in it."""

    @property
    def label(self) -> str:
        return self.spec.name or self.spec.unique_key or self.place


class JobSet(NamedTuple):
    """All jobs of a set of files."""

    name: str
    jobs: list[WantedJob]

    @property
    def tag(self) -> str:
        return OF_FILES + self.name


def read_jobs(path: Path, set_name: str | None) -> JobSet:
    """Read a file, the files of a folder, or standard input (`-`).

    The set is named by `set_name`, or else by the files, or else after the file or folder. Raises InvalidInput with every flaw.
    """
    wanted: list[WantedJob] = []
    names: dict[str, str] = {}
    flaws: list[Flaw] = []
    for place, text, is_json in _texts(path):
        content = _content(place, text, is_json=is_json)
        if content.set is not None:
            names[content.set] = place
        for number, members in enumerate(content.jobs):
            try:
                spec = _decode_spec.decode(msgspec.json.encode(members))
                wanted.append(WantedJob(spec, f"{place}, job {number + 1}"))
            except InvalidInput as bad:
                flaws += [
                    msgspec.structs.replace(flaw, pointer=f"{place}: /jobs/{number}{flaw.pointer}")
                    for flaw in bad.flaws
                ]
    if set_name is None and len(names) > 1:
        raise InvalidInput(f"the files name different sets ({', '.join(sorted(names))}): choose one with --set")
    chosen = set_name or next(iter(names), None) or _set_of(path)
    flaws += [*_flaws_of_set(chosen), *_flaws_of_identity(wanted)]
    if flaws:
        raise InvalidInput(f"{len(flaws)} values are not valid; nothing was changed", flaws)
    return JobSet(chosen, wanted)


def write_jobs(jobs: Iterable[JobSpec], set_name: str | None, form: str, comments: Sequence[str] = ()) -> str:
    """Return jobs as the text of a file. Comments precede YAML; JSON has none."""
    content: dict[str, Any] = {} if set_name is None else {"set": set_name}
    content["jobs"] = [_members(job) for job in jobs]
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    return "".join(f"# {line}".rstrip() + "\n" for line in comments) + dump(content)


def _members(job: JobSpec) -> dict[str, Any]:
    """Return the members of a job that differ from their defaults, the name first."""
    members: dict[str, Any] = {"name": job.name} if job.name is not None else {}
    for field in msgspec.structs.fields(JobSpec):
        value = getattr(job, field.name)
        if field.required or value != field.default:
            is_whole = isinstance(value, float) and value.is_integer()
            members[field.encode_name] = int(value) if is_whole else msgspec.to_builtins(value)
    return members


def without_marks(spec: JobSpec) -> JobSpec:
    """Return a spec without the tag and the unique key that `apply` gives."""
    tags = tuple(tag for tag in spec.tags if not tag.startswith(OF_FILES))
    key = None if spec.unique_key is not None and spec.unique_key.startswith(OF_FILES) else spec.unique_key
    return msgspec.structs.replace(spec, tags=tags, unique_key=key)


def read_text(path: Path) -> str:
    """Return the text of a file or of standard input (`-`). Raises NotFound and InvalidInput."""
    try:
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if str(path) == "-" else _read(path)
        text = raw.decode()
    except FileNotFoundError as missing:
        raise NotFound(f"there is no file {path}") from missing
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    except UnicodeError as bad:
        raise InvalidInput(f"{path} is not UTF-8 text: {bad}") from bad
    if len(raw) > MOST_BYTES:
        raise InvalidInput(f"{path} exceeds {MOST_BYTES} bytes; split it")
    return text


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _texts(path: Path) -> Iterable[tuple[str, str, bool]]:
    """Yield the name, the text and whether it is JSON, of each file."""
    if not path.is_dir():
        yield str(path), read_text(path), path.suffix == ".json"
        return
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith("."))
    if not found:
        raise NotFound(f"{path} has no files of jobs ({', '.join(SUFFIXES)})")
    if len(found) > MOST_FILES:
        raise InvalidInput(f"{path} has {len(found)} files, more than {MOST_FILES}")
    total = 0
    for each in found:
        text = read_text(each)
        total += len(text)
        if total > MOST_BYTES:
            raise InvalidInput(f"the files in {path} exceed {MOST_BYTES} bytes together; split them into several sets")
        yield str(each), text, each.suffix == ".json"


def _content(place: str, text: str, *, is_json: bool) -> FileOfJobs:
    """Return the jobs of all documents of a file. JSON is read without the YAML package."""
    try:
        documents = [msgspec.json.decode(text)]
    except msgspec.DecodeError as bad:
        if is_json:
            raise InvalidInput(f"{place} is not JSON: {bad}") from bad
        documents = load_all(text, place)
    jobs: list[dict[str, Any]] = []
    name = None
    for document in documents:
        part = _part(place, document)
        jobs += part.jobs
        name = part.set or name
    return FileOfJobs(jobs, name)


def _part(place: str, document: Any) -> FileOfJobs:
    if isinstance(document, dict) and "type" in document:
        return FileOfJobs([document])
    try:
        return msgspec.convert(document, FileOfJobs)
    except msgspec.ValidationError as bad:
        raise InvalidInput(
            f"{place} must be one job, or `jobs` with a list of jobs and optionally `set`: {bad}"
        ) from bad


def _set_of(path: Path) -> str:
    if str(path) == "-":
        raise InvalidInput("standard input has no name: name the set of jobs with --set")
    return path.resolve().stem if path.is_file() else path.resolve().name


def _flaws_of_set(name: str) -> list[Flaw]:
    rule = "1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit"
    return [] if _SET.fullmatch(name) else [Flaw("set", f"the name of a set must be {rule}; name it with --set", name)]


def _flaws_of_identity(wanted: Sequence[WantedJob]) -> list[Flaw]:
    """Return a flaw for each job that cannot be told from others when the files are applied again."""
    flaws, seen = [], dict[str, str]()
    if len(wanted) > MOST_JOBS:
        flaws.append(Flaw("jobs", f"at most {MOST_JOBS} jobs in one set", len(wanted)))
    for one in wanted:
        if one.spec.name is None and one.spec.unique_key is None:
            flaws.append(Flaw(one.place, "a job in a file needs a name or a uniqueKey, by which it is found again"))
            continue
        identity = f"key {one.spec.unique_key}" if one.spec.unique_key is not None else f"name {one.spec.name}"
        if identity in seen:
            flaws.append(Flaw(one.place, f"the same {identity} as in {seen[identity]}"))
        seen[identity] = one.place
    return flaws


FORMATS = click.Choice(["yaml", "json"])
