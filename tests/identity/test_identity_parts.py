"""What parts of cases add to the fingerprint of a run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench import CasePart, ConfigError, Model, sample_case
from pytest_agentbench.identity.fingerprints import run_fingerprint_input

MODEL = Model(model_id="m", requested_model="m")


class Task(CasePart):
    environment: Path | None = None
    files: tuple[str, ...] = ()
    steps: int = 1


class Notes(CasePart):
    text: str = ""

    def identity(self, folder: Path) -> dict[str, Any]:
        return {}


def identity(folder: Path, part: CasePart) -> Any:
    case = sample_case(path=folder / "task.toml", parts={"task": part})
    return run_fingerprint_input(case, MODEL, "x", {}, 1).get("parts")


def test_the_fields_of_a_part_that_a_source_makes_are_covered(tmp_path: Path) -> None:
    assert identity(tmp_path, Task(steps=2)) == {"task": {"environment": None, "files": [], "steps": 2}}
    assert identity(tmp_path, Notes(text="any")) is None


def test_a_path_is_covered_by_its_content(tmp_path: Path) -> None:
    file, other = tmp_path / "one" / "Dockerfile", tmp_path / "two" / "Dockerfile"
    for path in (file, other):
        path.parent.mkdir()
        path.write_text("FROM a\n")
    first = identity(file.parent, Task(environment=file))
    assert first == identity(other.parent, Task(environment=other))  # of another clone
    file.write_text("FROM b\n")
    assert identity(file.parent, Task(environment=file)) != first
    assert identity(tmp_path, Task(environment=Path("/no/such")))["task"]["environment"] == "/no/such"


def test_a_folder_is_covered_by_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "a.txt").write_text("a")
    (folder / "link").symlink_to("app")
    seen = [identity(tmp_path, Task(environment=folder))]
    (folder / "app" / "a.txt").write_text("b")
    seen.append(identity(tmp_path, Task(environment=folder)))
    (folder / "app" / "a.txt").rename(folder / "app" / "b.txt")
    seen.append(identity(tmp_path, Task(environment=folder)))
    (folder / "link").unlink()
    seen.append(identity(tmp_path, Task(environment=folder)))
    assert all(one != two for one, two in pairwise(seen))


def test_a_text_that_names_a_file_of_the_case_is_covered_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "data.txt").write_text("a")
    (tmp_path / "outside.txt").write_text("a")
    part = Task(files=("data.txt", "../outside.txt", "none.txt", "\0"))
    first = identity(tmp_path / "case", part)
    data, *others = first["task"]["files"]
    assert data["path"] == "data.txt"
    assert others == ["../outside.txt", "none.txt", "\0"]
    (tmp_path / "case" / "data.txt").write_text("b")
    assert identity(tmp_path / "case", part) != first


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_agentbench.bounded.digests.MAX_FILES", 1)
    for name in ("a", "b"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="cannot be read: found more files than 1"):
        identity(tmp_path, Task(environment=tmp_path))
