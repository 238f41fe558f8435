"""A verifier that asks a solution in another sandbox gets plain data, or the reason why it gets none."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.started_sandbox import started

from pytest_agentbench.checks.verifying.apart import SolutionServer

SOLUTION = """
import json, sys, time
def double(values, by=2): return [value * by for value in values]
def prints(): print("noise"); return {"a": (1, 2)}
def raises(): raise KeyError("x")
def leaves(): sys.exit(3)
def kills(): import os; print("last words", flush=True); os._exit(4)
def odd(): return {1, 2}
class Shapes:
    @staticmethod
    def area(): return 6
"""


def answers(folder: Path, *requests: Mapping[str, Any], seconds: float = 20.0) -> list[Mapping[str, Any]]:
    """The replies to requests, one after the other."""

    async def ask() -> list[Mapping[str, Any]]:
        async with started("local", folder) as solution:
            solution.workspace.write_text("solution.py", SOLUTION)
            asked = SolutionServer(solution, sys.executable, seconds)
            return [await asked._reply(request) for request in requests]

    return asyncio.run(ask())


def call(function: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    given = {"arguments": arguments, "named": named, "pythonpath": ["."], "seconds": 20.0}
    return {"do": "call", "function": function, **given}


def run(*argv: str, stdin: bytes = b"", seconds: float = 20.0) -> dict[str, Any]:
    return {"do": "run", "argv": list(argv), "stdin": base64.b64encode(stdin).decode(), "seconds": seconds}


def test_a_function_returns_plain_data(tmp_path):
    assert answers(tmp_path, call("solution:double", [1, 2]), call("solution:double", [1], by=3)) == [
        {"value": [2, 4]},
        {"value": [3]},
    ]


def test_printed_text_is_not_part_of_the_returned_value(tmp_path):
    assert answers(tmp_path, call("solution:prints"), call("solution:Shapes.area")) == [
        {"value": {"a": [1, 2]}},
        {"value": 6},
    ]


def test_an_exception_or_an_unserialisable_value_is_an_error(tmp_path):
    raised, left, odd = answers(tmp_path, call("solution:raises"), call("solution:leaves"), call("solution:odd"))
    assert (raised, left) == ({"error": "KeyError: 'x'"}, {"error": "SystemExit: 3"})
    assert odd["error"].startswith("TypeError: Object of type set")


def test_a_process_that_ends_early_is_an_error_with_its_output(tmp_path):
    [found] = answers(tmp_path, call("solution:kills"))
    assert found == {"error": "it ended with exit code 4 and returned nothing: last words\n"}


def test_a_program_is_run_with_its_stdin(tmp_path):
    found = answers(tmp_path, run("cat", stdin=b"given"), run("sh", "-c", "echo no; exit 5"))
    assert found == [{"exit_code": 0, "output": "given"}, {"exit_code": 5, "output": "no\n"}]


def test_nothing_takes_longer_than_it_may(tmp_path):
    found = answers(tmp_path, run("sleep", "60", seconds=0.05), run("sleep", "60"), seconds=0.1)
    assert found == [{"error": "it had not ended after 0.05 s"}, {"error": "it had not ended after 0.1 s"}]


def test_a_file_is_read_and_a_link_is_not(tmp_path):
    async def ask() -> list[Mapping[str, Any]]:
        async with started("local", tmp_path) as solution:
            solution.workspace.write_text("answer.txt", "42\n")
            (solution.workspace.path / "link.txt").symlink_to("answer.txt")
            asked = SolutionServer(solution, sys.executable, 20.0)
            return [await asked._reply({"do": "read", "path": path}) for path in ("answer.txt", "gone", "link.txt")]

    held, gone, link = asyncio.run(ask())
    assert held == {"content": base64.b64encode(b"42\n").decode()}
    assert gone["error"].startswith("FileNotFoundError: ")
    assert link["error"].startswith("PathRefusedError: ")


@pytest.mark.parametrize("request_", [{}, {"do": "guess"}, {"do": "run"}, {"do": "run", "argv": 1, "stdin": 2}])
def test_a_malformed_request_is_an_error(tmp_path, request_):
    [found] = answers(tmp_path, request_)
    assert found["error"].startswith("the request is not understood: ")
