"""Files of public bug reports are imported with the scores that are right for them; skipped if they are absent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from importing import Imported, Importing, importing

__all__ = ["importing"]

REPORTS = Path(__file__).parents[4] / "shared" / "data" / "reports"
pytestmark = pytest.mark.skipif(not REPORTS.is_dir(), reason="the files of the reports are not in this checkout")


def call(importing: Importing, tool: str, name: str) -> Imported:
    """Import a copy of a report's file, so that nothing is written next to it."""
    folder = shutil.copytree(REPORTS / Path(name).parent, importing.project / "reported")
    return importing.call(tool, folder / Path(name).name)


def test_a_log_without_completion_keeps_answers_and_verdicts(importing: Importing):
    found = call(importing, "inspect", "inspect_log/old_log.json")
    assert (found.code, found.err) == (0, "")
    predictions = [json.loads(line) for line in (found.folder / "predictions.jsonl").read_text().splitlines()]
    assert predictions == [{"id": "1", "prediction": "Paris"}, {"id": "2", "prediction": "Milan"}]


@pytest.mark.slow
def test_the_verdicts_of_the_log_are_ours(importing: Importing):
    call(importing, "inspect", "inspect_log/old_log.json")
    importing.run("--agentbench-predictions", "cases/it/predictions.jsonl")
    report = json.loads((importing.project / "outputs" / "report.json").read_text())
    assert [run["outcome"] for run in report["runs"]] == ["passed", "failed"]


def test_tools_that_were_called_come_with_the_answer(importing: Importing):
    found = call(importing, "deepeval", "deepeval_tools/goldens.json")
    assert found.code == 0
    row = json.loads((found.folder / "predictions.jsonl").read_text())
    call_made = {"name": "lookup", "arguments": {"q": "Everest"}}
    assert row["prediction"] == {"output": "8849 m", "tool_calls": [call_made]}


def test_a_list_that_is_not_expanded_is_one_test(importing: Importing):
    found = call(importing, "promptfoo", "promptfoo_array/promptfooconfig.yaml")
    assert found.code == 0
    assert [name for name in found.files if name.startswith("test-1")] == ["test-1/test.yaml"]
    assert [line for line in found.err.splitlines() if "providers" not in line] == []


def test_json_of_a_cell_is_put_in(importing: Importing):
    found = call(importing, "promptfoo", "promptfoo_json_cell/promptfooconfig.yaml")
    assert found.code == 0
    texts = [found.case(f"test-{at}")["input"]["messages"][0]["content"] for at in (1, 2)]
    assert texts == ["Say in French, formal tone: Hello world", "Say in Pirate, authentic tone: I'm hungry"]
