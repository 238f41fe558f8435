"""Files of other kinds that hold cases: from a conftest's hook, as docs/extending.md shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def quiz(bench):
    text = DOCS.read_text(encoding="utf-8")
    code = re.search(r"## Files that hold cases.*?```python[^\n]*\n(.*?)```", text, re.DOTALL)
    assert code is not None
    bench.write("conftest.py", code[1])
    bench.write("cases/sums.quiz", "quiz\n1 + 1 = 2\n2 + 2 = 4\n")
    bench.write("cases/sums.demo.yaml", "schema_version: 1\nanswers: {'2': '2', '3': '5'}\n")
    return bench


def test_cases_of_a_plugin_are_items(quiz):
    finished = quiz.run("cases", "--model", "demo")
    assert finished.outcomes == {"sums.2[demo]": "passed", "sums.3[demo]": "failed"}


def test_a_source_without_words_reads_each_file_of_its_name(quiz):
    conftest = quiz.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace(', ["quiz"])', ")"))
    assert quiz.run("cases", "--model", "demo").outcomes == {"sums.2[demo]": "passed", "sums.3[demo]": "failed"}


def test_an_edited_file_of_a_part_makes_a_new_run(quiz):
    conftest = quiz.path / "conftest.py"
    part = """
from pathlib import Path
from pytest_agentbench import CasePart

class Task(CasePart):
    image: Path

def pytest_agentbench_case_parts():
    return {"task": Task}
"""
    with_part = conftest.read_text().replace(
        'tags=("quiz",),', 'tags=("quiz",), parts={"task": Task(image=self.path)},'
    )
    conftest.write_text(part + with_part)
    quiz.run("cases", "--model", "demo")
    assert quiz.run("cases", "--model", "demo").runs["sums.2[demo]"]["reused"]
    quiz.write("cases/sums.quiz", "quiz\n1 + 1 = 2\n2 + 2 = 4\n\n")
    assert not quiz.run("cases", "--model", "demo").runs["sums.2[demo]"]["reused"]


def test_a_bad_row_is_an_error_with_its_line(quiz):
    quiz.write("cases/sums.quiz", "quiz\n1 + 1 = 2\n2 + 2\n")
    finished = quiz.run("cases", "--model", "demo")
    assert "sums.quiz:3:1: found no answer, expected QUESTION = ANSWER" in finished.text
    assert finished.outcomes == {"sums.2[demo]": "passed"}


def test_a_name_that_is_taken_is_a_usage_error(quiz):
    conftest = quiz.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('{"quiz": QUIZ', '{"cases": QUIZ'))
    finished = quiz.run("cases", "--model", "demo")
    assert finished.exit == 4
    assert "conftest.py adds the case source 'cases', which exists already" in finished.text
