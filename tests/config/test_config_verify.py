"""`verify` of a test.yaml: valid fields, and problems with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.config.base import load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.test_yaml import load_case

HEAD = "schema_version: 1\ncase_id: a\ntitle: A\nrunner: {type: llm_probe}\ninput: {}\n"


def write(folder: Path, text: str) -> Path:
    (folder / "verify").mkdir(exist_ok=True)
    (folder / "verify" / "t.py").write_text("")
    path = folder / "test.yaml"
    path.write_text(HEAD + text)
    return path


def case(folder: Path, text: str) -> Case:
    return load_case(write(folder, text), ConfigRoot(folder))


def test_sources_are_found_next_to_the_case(tmp_path: Path) -> None:
    loaded = case(tmp_path, "verify:\n  files: {tests/t.py: verify/t.py, all: verify}\n  command: [pytest, tests]\n")
    [verifier] = loaded.verify
    assert {file.target: file.source for file in verifier.files} == {
        "tests/t.py": tmp_path / "verify" / "t.py",
        "all": tmp_path / "verify",
    }
    assert (verifier.check_id, verifier.command, verifier.expected.exit_code) == ("verify", ("pytest", "tests"), 0)


def test_a_text_is_for_the_shell_and_a_list_has_names(tmp_path: Path) -> None:
    loaded = case(
        tmp_path, "verify:\n- command: make test\n- pytest: {tests: [t.py]}\n- {command: x, check_id: last}\n"
    )
    assert [each.check_id for each in loaded.verify] == ["verify", "verify_2", "last"]
    assert loaded.verify[0].command == ("/bin/sh", "-c", "make test")
    assert loaded.verify[1].pytest is not None
    assert loaded.verify[1].pytest.ids == ("t.py",)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("verify: 3", ["6:9: verify: found 3"]),
        ("verify: []", ["6:9: verify: found an empty list, expected at least one element"]),
        ("verify: {}", ["6:9: verify: found neither of 'command' and 'pytest', expected exactly one"]),
        ("verify: {command: x, pytest: {tests: [a]}}", ["6:9: verify: found both of 'command' and 'pytest'"]),
        ("verify: {command: []}", ["6:19: verify.command: found an empty list"]),
        ("verify: {command: x, expectd: 1}", ["expectd: unknown field; did you mean 'expected'?"]),
        ("verify: {pytest: {}}", ["6:18: verify.pytest: found no test"]),
        (
            "verify: {pytest: {tests: [a]}, expected: {exit_code: 1}}",
            ["6:42: verify.expected: belongs to 'command'"],
        ),
        (
            "verify: {pytest: {tests: [/a.py, 'b/../c.py::t'], pythonpath: ['..'], config: /x}}",
            ["verify.pytest.tests[0]: found '/a.py'", "tests[1]: found 'b/../c.py'", "pythonpath[0]", "config: found"],
        ),
        (
            "verify:\n  command: x\n  files: {../a: verify/t.py, /b: verify/t.py, .: verify, c: gone, d: ../../x}",
            ["8:17: verify.files.../a: found '../a'", "files./b:", "files..:", "files.c: found 'gone'", "files.d:"],
        ),
        (
            "verify: [{command: x, check_id: verify_2}, {command: y}]",
            ["6:44: verify[1].check_id: Duplicate check_id 'verify_2'"],
        ),
        (
            "deterministic_checks: [{check_id: verify, declarative: {kind: final_response_present}}]\n"
            "verify: {command: x}",
            ["7:9: verify.check_id: Duplicate check_id 'verify'"],
        ),
        ("verify: {command: x, timeout_seconds: 0, keep: [/x]}", ["timeout_seconds: found 0", "keep[0]: found '/x'"]),
        ("verify: {command: x, apart: true, keep: [a]}", ["6:41: verify.keep: keeps files of the agent"]),
        ("verify: {command: x, canary: gone}", ["6:30: verify.canary: found 'gone', expected an existing folder"]),
    ],
)
def test_all_problems_are_reported_with_their_places(tmp_path: Path, text: str, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, text), TestCaseFile)
    said = str(raised.value)
    assert [problem for problem in problems if problem not in said] == [], said


def test_a_source_stays_below_the_config_root(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    (tmp_path / "root").mkdir()
    with pytest.raises(ConfigError, match="which leaves"):
        case(tmp_path / "root", "verify: {command: x, files: {a: ../outside.py}}\n")


@pytest.mark.slow
def test_editors_know_every_field() -> None:
    definitions = json_schemas()["test_case"]["$defs"]
    for name in ("CaseVerifier", "PytestTests", "Expected"):
        fields = definitions[name]["properties"]
        assert all(field.get("description") for field in fields.values()), name
