"""Verdicts of verifiers on the reports of their tests or commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.checks.verifying.verifiers import (
    _compare,
    _judge_reply,
    _missing_reply_verdict,
    _read_reply,
    choose_python,
    is_named,
)
from pytest_agentbench.records.case import Verifier
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, SandboxSpec

TOKEN = "t" * 64


def verifier(**fields: Any) -> Verifier:
    return Verifier.model_validate({"check_id": "v", "timeout_seconds": 60.0, **fields})


def judged(tests: dict[str, Any], *, wanted: tuple[str, ...] = ("t.py",), **fields: Any):
    deciding = verifier(pytest={"tests": wanted})
    assert deciding.pytest is not None
    said = {name: {"outcome": each, "message": ""} if isinstance(each, str) else each for name, each in tests.items()}
    reply = {"loaded": True, "stopped": None, "ended": 0, "exit": 0, "problems": [], "output": "", "tests": said}
    return _judge_reply(deciding.pytest, deciding, {**reply, **fields})


def test_all_that_ran_and_passed_passes():
    found = judged({"t.py::a": "passed", "t.py::b[1]": "passed"}, output="2 passed\n")
    assert (found.outcome, found.message, found.actual) == ("passed", "2 of 2 tests passed", None)
    assert found.outputs == {"tests": {"t.py::a": "passed", "t.py::b[1]": "passed"}, "printed": "2 passed\n"}
    assert judged({"t.py::a": "passed"}).message == "1 of 1 test passed"
    assert "printed" not in judged({"t.py::a": "passed"}, output=" \n").outputs


@pytest.mark.parametrize("outcome", ["failed", "skipped", "xfailed", "xpassed", "not run", "unfinished"])
def test_nothing_but_a_pass_counts(outcome):
    found = judged({"t.py::a": "passed", "t.py::b": outcome}, ended=1, exit=1)
    assert (found.outcome, found.message) == ("failed", f"1 of 2 tests passed: t.py::b {outcome}")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"stopped": "time-out", "ended": None, "exit": -9}, "they had not ended after 60 s"),
        ({"stopped": "reported too much", "ended": None, "exit": -9}, "they were stopped: reported too much"),
        ({"ended": None, "exit": 3}, "their process ended before pytest did (exit code 3)"),
        ({"ended": None, "exit": 0}, "their process ended before pytest did (exit code 0)"),
        ({"ended": None, "exit": -11}, "their process ended before pytest did (signal 11)"),
        ({"ended": 1, "exit": 1}, "pytest ended with exit status 1, its process with 1"),
        ({"ended": 0, "exit": 7}, "pytest ended with exit status 0, its process with 7"),
        ({"problems": [("x.py", "no")]}, "x.py could not be collected"),
        ({"problems": [("", "no")]}, "pytest could not be collected"),
    ],
)
def test_an_end_that_is_not_plain_is_a_fault_of_tests_that_passed(fields, fault):
    found = judged({"t.py::a": "passed"}, **fields)
    assert (found.outcome, found.message) == ("failed", f"1 of 1 test passed: {fault}")


def test_every_named_test_has_to_run():
    found = judged({"t.py::a": "passed"}, wanted=("t.py", "./u.py//::b", "t.py::a[1]"))
    assert found.message == "1 of 1 test passed: u.py::b did not run; t.py::a[1] did not run"
    assert judged({}).message == "0 of 0 tests passed: t.py did not run"


def test_five_faults_are_listed_and_the_others_counted():
    found = judged({f"t.py::{n}": "failed" for n in range(7)}, ended=1, exit=1)
    told = "; ".join(f"t.py::{n} failed" for n in range(5))
    assert found.message == f"0 of 7 tests passed: {told}; and 2 more"
    five = judged({f"t.py::{n}": "failed" for n in range(5)}, ended=1, exit=1)
    assert five.message == f"0 of 5 tests passed: {told}"


def test_a_long_fault_ends_as_it_does():
    long = f"t.py::{'x' * 400}"
    message = judged({long: "failed"}, ended=1, exit=1).message
    assert message == f"0 of 1 test passed: …{'x' * 293} failed"


def test_error_lines_of_pytest_are_the_evidence():
    tests = {
        "t.py::a": {"outcome": "failed", "message": "def a():\nE   assert 1 == 2\nE    +  where\nx"},
        "t.py::b": {"outcome": "failed", "message": "E   other"},
    }
    assert judged(tests).actual == "assert 1 == 2 +  where"
    assert judged(tests, problems=[("x", ""), ("y", "ImportError: no\nmodule")]).actual == "ImportError: no\nmodule"
    assert judged({"t.py::a": "failed"}).actual is None


def test_a_pytest_that_cannot_be_loaded_is_no_fault_of_the_agent():
    found = judged({}, loaded=False, problems=[("", "No module named pytest"), ("", "x")], ended=None, exit=70)
    assert (found.outcome, found.message) == (
        "error",
        "pytest cannot be run in the sandbox: No module named pytest; x; install it in the image, or use a command",
    )
    assert "said so" in judged({}, loaded=False, output="said so").message
    assert judged({}, loaded=False, stopped="time-out").outcome == "failed"


def test_the_reply_is_the_second_line_with_the_token():
    begun, reply = json.dumps({"token": TOKEN}), json.dumps({"token": TOKEN, "tests": {}})
    assert _read_reply(f"noise\n{begun}\nnoise\n{reply}\n", TOKEN) == (True, {"token": TOKEN, "tests": {}})
    assert _read_reply(f"{begun}\n", TOKEN) == (True, None)
    assert _read_reply(f"{begun}\n{reply[:-3]}", TOKEN) == (True, None)
    assert _read_reply("noise\n", TOKEN) == (False, None)


def ended(code: int | None, output: str = "", killed: Any = None) -> ExecResult:
    return ExecResult(code, output, killed, truncated=False, seconds=1.0)


def test_without_a_reply_the_code_under_test_ended_it_or_the_sandbox_lacks_python():
    tests = verifier(pytest={"tests": ["t.py"]})
    found = _missing_reply_verdict(ended(3), tests, begun=True)
    assert (found.outcome, found.message) == (
        "failed",
        "the program that runs the tests was ended before its report: exit code 3",
    )
    found = _missing_reply_verdict(ended(None, killed="time-out"), tests, begun=True)
    assert found.message.endswith("the verifier had not ended after 60 s")
    found = _missing_reply_verdict(ended(None, killed="memory"), tests, begun=True)
    assert found.message.endswith("the verifier was killed: it broke the sandbox's limit of memory")
    found = _missing_reply_verdict(ended(127, "python3: not found"), tests, begun=False)
    assert (found.outcome, found.outputs) == ("error", {"printed": "python3: not found"})
    assert found.message == "the tests could not be run, for which the sandbox needs python3: python3: not found"
    assert _missing_reply_verdict(ended(127), tests, begun=False).message.endswith("python3: exit code 127")


@pytest.mark.parametrize(
    ("test", "name", "named"),
    [
        ("t.py::a", "t.py::a", True),
        ("t.py::a[1]", "t.py::a", True),
        ("t.py::A::m", "t.py::A", True),
        ("t.py::ab", "t.py::a", False),
        ("d/t.py::a", "d", True),
        ("dd/t.py::a", "d", False),
    ],
)
def test_a_name_selects_a_test_or_its_parent(test, name, named):
    assert is_named(test, name) == named


def test_the_python_of_a_sandbox():
    assert choose_python(SandboxSpec("docker", network=True))[0] == "python3"
    python, spec = choose_python(SandboxSpec("local", network=True))
    assert (python, spec.network, spec.mounts) == (sys.executable, False, ())


def test_a_python_that_the_sandbox_hides_is_mounted(monkeypatch):
    monkeypatch.setattr(sys, "prefix", "/tmp/environment")
    python, spec = choose_python(SandboxSpec("bubblewrap"))
    assert python == "/verifier-python/bin/python"
    assert [(each.source, each.target) for each in spec.mounts] == [(Path("/tmp/environment"), "/verifier-python")]
    assert choose_python(SandboxSpec("local"))[1].mounts == ()


@pytest.mark.parametrize(
    ("expected", "result", "outcome", "message"),
    [
        ({}, None, "passed", "the verifier's command ended with exit code 0"),
        ({"exit_code": 2}, None, "failed", "the verifier's command ended with exit code 0, expected 2"),
        ({"output_contains": ["all", "good"]}, None, "passed", "the verifier's command ended with exit code 0"),
        ({"output_contains": ["all", "bad"]}, None, "failed", "the verifier's command did not print the text"),
        ({"result": {"a": 1}}, {"a": 1, "b": 2}, "passed", "the verifier's command ended with exit code 0"),
        ({"result": {"a": 1}}, {"a": 2}, "failed", "the verifier's result is not as expected"),
        ({"result": {"a": 1}}, None, "failed", "the verifier's result is not as expected"),
        ({"result": {}}, None, "failed", "the verifier's result is not as expected"),
    ],
)
def test_a_command_is_compared_with_the_expectation(expected, result, outcome, message):
    found = _compare(verifier(command=("x",), expected=expected), ended(0, "all good\n"), result)
    assert (found.outcome, found.message) == (outcome, message)


def test_a_killed_command_fails_despite_matching_output():
    found = _compare(verifier(command=("x",)), ended(None, "all good", "time-out"), {"a": 1})
    assert (found.outcome, found.message, found.actual) == (
        "failed", "the verifier had not ended after 60 s", "all good"
    )  # fmt: skip
