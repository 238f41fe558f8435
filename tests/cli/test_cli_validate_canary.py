"""`agentbench validate --canary` reports verifiers that pass a wrong solution."""

from __future__ import annotations

import pytest
import yaml

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def write(path: str, content: object) -> None:
        file = tmp_path / "cases" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")

    write(
        "run_profiles/here.yaml", {"schema_version": 1, "run_profile_id": "here", "title": "Here", "sandbox": "local"}
    )
    return write


def case(case_id: str, *verify: object, **fields: object) -> dict[str, object]:
    head = {"schema_version": 1, "case_id": case_id, "title": case_id, "runner": {"type": "llm_probe"}}
    return {**head, "input": {"messages": [{"role": "user", "content": "do it"}]}, "verify": [*verify], **fields}


def canary(capsys, *arguments: str) -> tuple[int, list[str]]:
    code = main(["validate", "cases", "--canary", "--run-profile", "here", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_verifiers_that_pass_a_wrong_solution_are_errors(project, capsys, tmp_path):
    wrong, right = {"command": "test -e left.txt"}, {"command": "grep -q 42 left.txt"}
    project("good/workspace/left.txt", "")
    project("good/test.yaml", case("good", wrong, right, workspace="workspace"))
    project("bad/workspace/left.txt", "")
    project("bad/test.yaml", case("bad", {**wrong, "check_id": "first"}, workspace="workspace"))
    project("own/stub/left.txt", "42")
    project("own/test.yaml", case("own", {**right, "canary": "stub"}))
    project("empty/test.yaml", case("empty", {"command": "true"}))
    code, said = canary(capsys)
    assert (code, said[-1][:36]) == (1, "4 cases tried with wrong solutions; ")
    assert [line.partition(": verify: ")[2] for line in said[:-1]] == [
        f"{names} passed on {where}, which is known to be wrong: a run passes without any work"
        for names, where in (
            ("first", f"the stub {tmp_path}/cases/bad/workspace"),
            ("verify", "an empty workspace"),
            ("verify", f"the stub {tmp_path}/cases/own/stub"),
        )
    ]


def test_a_verifier_that_cannot_be_tried_is_an_error(project, capsys):
    project("a/tests/test_a.py", "def test_a(): assert 0\n")
    tests = {"files": {"tests": "tests"}, "pytest": {"tests": ["tests/test_a.py"], "plugins": ["no_such"]}}
    project("a/test.yaml", case("a", tests))
    code, said = canary(capsys)
    assert code == 1
    assert "verify could not be tried on an empty workspace: pytest cannot be run in the sandbox" in said[0]
    project("a/test.yaml", case("a", {"command": "true", "canary": "gone"}))
    code, said = canary(capsys)
    assert (code, len(said)) == (1, 2)
    assert "canary: found 'gone', expected an existing folder" in said[0]
