"""`agentbench validate` names ids of tests that hidden tests do not have, and imports no test outside a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.cli import main

TESTS = """
import pathlib
import pytest
from solution import median

pathlib.Path(MARK).touch()

@pytest.mark.parametrize("values", [[5], [5, 5]], ids=["one", "two "])
def test_same(values):
    assert median(values) == 5
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of cases; their tests leave the file `imported` in it if they run outside a sandbox."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    write(tmp_path / "cases/run_profiles/here.yaml", {"run_profile_id": "here", "title": "Here", "sandbox": "local"})
    return tmp_path


def write(file: Path, content: str | dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else yaml.safe_dump({"schema_version": 1, **content}))


def write_case(project: Path, *ids: str, folder: str = "cases", **fields: Any) -> None:
    place = project / folder / "a"
    write(place / "verify/test_a.py", TESTS.replace("MARK", repr(str(project / "imported"))))
    write(place / "workspace/solution.py", "median = None\n")
    verify = {"files": {"tests": "verify"}, "pytest": {"fail_to_pass": [*ids]}}
    head = {"case_id": "a", "title": "A", "runner": {"type": "llm_probe"}, "workspace": "workspace", "verify": verify}
    write(place / "test.yaml", {**head, "input": {"messages": [{"role": "user", "content": "do it"}]}, **fields})


def validate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = main(["validate", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_reading_the_tests_refutes_ids_without_running_anything(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_case(project, "tests/test_a.py::test_same", "tests/test_a.py::test_some ", "test_same (tests.test_a)")
    code, lines = validate(capsys, "cases")
    assert code == 1
    assert [line.partition("a/test.yaml:1:1: verify: pytest.fail_to_pass: ")[2] for line in lines[:-1]] == [
        "found 'test_same (tests.test_a)', which the tests do not have; did you mean 'tests/test_a.py::test_same'?",
        "found 'tests/test_a.py::test_some', which the tests do not have; did you mean 'tests/test_a.py::test_same'?",
    ]
    assert not (project / "imported").exists()


def test_ids_that_need_a_container_are_not_checked_unless_its_profile_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = "python@sha256:" + "0" * 64
    write_case(project, "tests/test_a.py::test_same[x]", "tests/test_a.py::test_same[y]", sandbox={"image": image})
    code, [warning, _] = validate(capsys, "cases")
    assert code == 0
    assert "warning: verify: 'tests/test_a.py::test_same[x]' and 1 more not checked, the tests were not co" in warning


def test_tests_of_a_folder_that_is_not_trusted_are_not_imported_on_this_machine(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "cases/vendor/them"
    write(project / folder / "run_profiles/here.yaml", {"run_profile_id": "here", "title": "Here", "sandbox": "local"})
    write_case(project, "tests/test_a.py::test_same[x]", "tests/test_a.py::test_some", folder=folder)
    code, lines = validate(capsys, folder, "--run-profile", "here")
    assert code == 1
    assert "found 'tests/test_a.py::test_some', which the tests do not have" in lines[0]
    assert "warning: verify: 'tests/test_a.py::test_same[x]' not checked, the tests were not collected: " in lines[-2]
    assert "found commands of a folder that is not trusted" in lines[-2]
    code, lines = validate(capsys, folder)
    assert "they are of a folder that is not trusted; name a run profile with --run-profile" in lines[-2]
    assert not (project / "imported").exists()


@pytest.mark.slow
def test_tests_are_collected_in_the_sandbox_of_the_profile(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(project, "tests/test_a.py::test_same[one]", "tests/test_a.py::test_same[two]")
    code, [error, _] = validate(capsys, "cases", "--run-profile", "here")
    assert code == 1
    assert error.endswith(
        "found 'tests/test_a.py::test_same[two]', which the tests do not have; did you mean "
        "'tests/test_a.py::test_same[two ]'?"
    )
    assert (project / "imported").exists()


@pytest.mark.slow
def test_tests_that_need_the_solution_are_no_mistake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(project, "tests/test_a.py::test_same[gone]")
    write(project / "cases/a/workspace/solution.py", "mean = None\n")
    assert validate(capsys, "cases", "--run-profile", "here")[0] == 0
