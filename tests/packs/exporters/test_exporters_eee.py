"""`agentbench export eee`: a report as pairs of files of Every Eval Ever 0.3."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest
from exporting import Exporting, exporting
from pydantic import BaseModel, ConfigDict, Field
from sdks.sdks_support import needs

__all__ = ["exporting"]

VARIABLE = "AGENTBENCH_TEST_EEE"
"""Names a virtual environment of Python 3.12 or later with every-eval-ever."""
WHO = ("--organisation", "Acme", "--relationship", "third_party", "--developer", "acme")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ToolCall(Strict):
    id: str
    name: str
    arguments: dict[str, str]


class Turn(Strict):
    turn_idx: int
    role: str
    content: str | None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: list[str] | None = None


class Question(Strict):
    raw: str
    reference: list[str]


class Answer(Strict):
    raw: list[str]


class Attribution(Strict):
    turn_idx: int
    source: str
    extracted_value: str
    extraction_method: str
    is_terminal: bool


class Verdict(Strict):
    score: float
    is_correct: bool
    num_turns: int | None = None
    tool_calls_count: int | None = None


class Line(Strict):
    """The fields of a sample, as the format's schema has them."""

    schema_version: Literal["0.3.0"]
    evaluation_id: str
    model_id: str
    evaluation_name: str
    evaluation_result_id: str
    sample_id: str
    interaction_type: Literal["single_turn", "multi_turn", "agentic"]
    input: Question
    output: Answer | None = None
    messages: list[Turn] | None = None
    answer_attribution: list[Attribution]
    evaluation: Verdict
    token_usage: dict[str, int] | None = None
    performance: dict[str, float] | None = Field(default=None)
    metadata: dict[str, str]


def export_pair(exporting: Exporting) -> tuple[Path, dict[str, Any], list[Line]]:
    code, out, err = exporting.call("eee", "published", *WHO)
    assert (code, err) == (0, ""), err
    (path,) = Path("published").rglob("*.json")
    assert out == f"{path}: 4 runs of demo\n"
    aggregate = json.loads(path.read_text())
    samples = Path("published", aggregate["detailed_evaluation_results"]["file_path"]).read_bytes()
    assert aggregate["detailed_evaluation_results"]["checksum"] == hashlib.sha256(samples).hexdigest()
    return path, aggregate, [Line.model_validate_json(line) for line in samples.splitlines()]


def test_a_pair_has_the_pass_rate_and_a_line_for_each_run_with_a_verdict(exporting):
    path, aggregate, lines = export_pair(exporting)
    assert path.parent == Path("published/data/default/acme/demo")
    assert aggregate["source_metadata"]["additional_details"] == {"runs_without_verdict": "2"}
    assert aggregate["model_info"]["additional_details"]["deployment_type"] == "unknown"
    (result,) = aggregate["evaluation_results"]
    assert result["score_details"]["score"] == 0.5
    assert result["score_details"]["uncertainty"]["num_samples"] == 4
    assert aggregate["detailed_evaluation_results"]["total_rows"] == len(lines) == 4

    by_id = {(line.sample_id, line.metadata["repetition"]): line for line in lines}
    wrong, tooled = by_id["wrong", "1"], by_id["tooled", "2"]
    assert (wrong.interaction_type, wrong.output, wrong.messages) == ("single_turn", Answer(raw=["Rome"]), None)
    assert wrong.evaluation == Verdict(score=0.0, is_correct=False)
    assert (tooled.interaction_type, tooled.output, tooled.evaluation.is_correct) == ("agentic", None, True)
    assert tooled.messages is not None
    assert [turn.role for turn in tooled.messages] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = tooled.messages[2].tool_calls or ()
    assert call.arguments == {"path": "a.txt", "content": "x", "append": "false"}
    assert tooled.answer_attribution[0].source == "messages[4].content"


def test_a_second_export_replaces_the_files_of_the_first(exporting):
    first = export_pair(exporting)
    assert export_pair(exporting) == first


def test_names_of_a_strangers_report_stay_inside_of_the_folder(exporting):
    def attack(report: dict[str, Any]) -> None:
        report["session"]["profiles"]["suite"] = ".."
        for row in report["runs"]:
            row["model_id"] = "../../evil"

    exporting.change(attack)
    assert exporting.call("eee", "a/b/published", *WHO)[0] == 0
    assert {str(path.parent) for path in Path("a").rglob("*.json*")} == {"a/b/published/data/unknown/acme/_.._evil"}


def test_a_report_without_a_verdict_is_refused_with_the_reason(exporting):
    exporting.change(lambda report: [row.update(outcome="error") for row in report["runs"]])
    code, out, err = exporting.call("eee", "published", *WHO)
    assert (code, out) == (1, "")
    assert "demo: no run has a verdict" in err


@pytest.mark.full
@needs(VARIABLE)
def test_the_formats_own_validator_accepts_a_pair(exporting):
    path, aggregate, _ = export_pair(exporting)
    files = [str(path.relative_to("published")), aggregate["detailed_evaluation_results"]["file_path"]]
    program = str(Path(os.environ[VARIABLE]) / "bin/every_eval_ever")
    done = subprocess.run([program, "validate", *files], cwd="published", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
