"""Files of jobs, without a server."""

from pathlib import Path

import pytest

from noonday.cli.job_files import read_jobs, without_marks, write_jobs
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.job import JobSpec
from tests.support.factories import every, spec

ONE = '{"type": "ONE_TIME", "name": "one", "target": {"pool": "demo", "handler": "demo.echo"}}'
TWO = """
set: two
jobs:
  - {name: two, type: CRON, schedule: "*/5 * * * *", target: {pool: demo, handler: demo.echo}}
  - {uniqueKey: key/3, type: INTERVAL, everySec: 60, target: {pool: demo, handler: demo.echo}}
"""


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def flaws_of(path: Path, set_name: str | None = None) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        read_jobs(path, set_name)
    return [f"{flaw.pointer}: {flaw.detail}" for flaw in refused.value.flaws]


def test_a_folder_is_one_set_of_all_its_files(tmp_path: Path) -> None:
    folder = written(tmp_path / "all", a_json=ONE, b_yaml=TWO, c_txt="not a job", d_yml="---\n---\n")
    found = read_jobs(folder, None)
    assert (found.name, found.tag) == ("two", "apply:two")
    assert [(one.label, one.place) for one in found.jobs] == [
        ("one", f"{folder}/a.json, job 1"),
        ("two", f"{folder}/b.yaml, job 1"),
        ("key/3", f"{folder}/b.yaml, job 2"),
    ]
    assert read_jobs(folder, "mine").name == "mine"


def test_a_set_is_named_after_its_file_or_folder(tmp_path: Path) -> None:
    folder = written(tmp_path / "billing", a_json=ONE)
    assert (read_jobs(folder, None).name, read_jobs(folder / "a.json", None).name) == ("billing", "a")


def test_every_flaw_is_named_with_its_file(tmp_path: Path) -> None:
    nameless = '{"type": "ONE_TIME", "target": {"pool": "p", "handler": "h"}}'
    jobs = f'{{"jobs": [{{"name": "a"}}, {ONE}, {ONE}, {nameless}]}}'
    flaws = flaws_of(written(tmp_path / "bad", a_json=jobs) / "a.json")
    assert len(flaws) == 3
    assert "a.json: /jobs/0" in flaws[0]
    assert flaws[1].endswith("the same name one as in " + str(tmp_path / "bad/a.json, job 2"))
    assert "needs a name or a uniqueKey" in flaws[2]


def test_a_set_with_an_unusable_name_is_refused(tmp_path: Path) -> None:
    (flaw,) = flaws_of(written(tmp_path / "x", a_json=ONE), "my jobs")
    assert "the name of a set must be" in flaw


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be one job, or `jobs`"),
        ('{"jobs": [], "sets": 1}', "sets"),
        ("{", "not JSON"),
        ("\xff", "UTF-8"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=message):
        read_jobs(file, None)


def test_files_that_name_different_sets_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "all", a_yaml=TWO, b_yaml="set: other\njobs: []")
    with pytest.raises(InvalidInput, match="other, two"):
        read_jobs(folder, None)


def test_missing_files_are_not_found(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(NotFound):
            read_jobs(path, None)


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize(
    "job",
    [
        spec(name="a", payload={"on": "yes", "n": [1, 2.5, None]}),
        every(90, name="b", tags=("x",), max_runs=3, timeout_sec=1.5),
        every(90, name="c", phase_sec=5, unique_key="*"),
    ],
)
def test_written_jobs_are_read_again(tmp_path: Path, form: str, job: JobSpec) -> None:
    file = tmp_path / f"jobs.{form}"
    file.write_text(write_jobs([job], "mine", form, ["a comment", ""]))
    found = read_jobs(file, None)
    assert (found.name, [one.spec for one in found.jobs]) == ("mine", [job])


def test_marks_of_apply_are_not_written() -> None:
    marked = spec(name="a", tags=("apply:x", "b"), unique_key="apply:x/a")
    assert without_marks(marked) == spec(name="a", tags=("b",))
    assert without_marks(spec(unique_key="own")) == spec(unique_key="own")
