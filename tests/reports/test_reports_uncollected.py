"""What a collector's error says, as files, lines and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.reports.assertion import collection_problems

ROOT = Path("/src/bench")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/src/bench/cases/a/test.yaml:3:1: titel: no", [("cases/a/test.yaml", 3, "titel: no")]),
        ("/src/common/base.yaml:12:5: a: b:1:2: c", [("../common/base.yaml", 12, "a: b:1:2: c")]),
        ("/src/bench/a.yaml:1:1: x\n/src/bench/b.yaml:2:1: y", [("a.yaml", 1, "x"), ("b.yaml", 2, "y")]),
        ("/src/bench/a b:c/test.yaml:1:1: x", [("a b:c/test.yaml", 1, "x")]),
        ("def collect(self):\n>   raise\nE   a.CollectionError: /src/bench/a.yaml:7:2: x", [("a.yaml", 7, "x")]),
        ("no such metric", [("cases/a.jsonl", None, "no such metric")]),
        ("Traceback:\n  lib.py:9: in f\nE   ValueError: odd\n", [("cases/a.jsonl", None, "E   ValueError: odd")]),
        ("", [("cases/a.jsonl", None, "cannot be collected")]),
    ],
)
def test_each_problem_has_its_file_and_line(text: str, expected: list[tuple[str, int | None, str]]) -> None:
    found = collection_problems("cases/a.jsonl::line 2", text, ROOT)
    assert [(each["file"], each["line"], each["message"]) for each in found] == expected


def test_a_message_is_bounded_and_can_be_written() -> None:
    (found,) = collection_problems("a", f"/src/bench/a.yaml:1:1: \ud800{'x' * 1_000_000}", ROOT)
    assert len(found["message"].encode()) < 1_010
