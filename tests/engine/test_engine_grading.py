"""Case parts, graders and the parts of evaluations: what packs add stands beside the records' own fields."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError
from support.tool_use_runs import evaluated, judgement, run, task, use

from pytest_agentbench.engine.grading import (
    FreeGrader,
    Grade,
    Grader,
    GradeRequest,
    MeasuredRun,
    TurnGrader,
    graders_of,
)
from pytest_agentbench.packs.mcp_bench.records import McpTask, ToolUse
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import Evaluation


def test_parts_are_written_beside_the_fields_of_a_record_and_read_from_there():
    case = task("A", "B")
    written = json.loads(case.model_dump_json())
    assert written["mcp_task"]["servers"] == ["A", "B"]
    assert "parts" not in written
    read = Case.model_validate(written)
    assert read == case
    assert read.part(McpTask) == case.mcp_task


def test_an_evaluation_contains_the_results_of_graders():
    evaluation = evaluated(task("A"), run(use("A:one")), judgement((5,) * 6))
    written = json.loads(evaluation.model_dump_json())
    assert written["tool_use"]["servers_used"] == 1
    assert Evaluation.model_validate(written).part(ToolUse) == evaluation.part(ToolUse)


def test_a_part_that_is_not_there_is_written_as_null_and_says_nothing():
    written = Evaluation(case_id="a", outcome="passed").model_dump()
    assert written["tool_use"] is None
    read = Evaluation.model_validate({**written, "of_another_pack": None})
    assert (read.parts, read.tool_use, read.part(ToolUse)) == ({}, None, None)


def test_a_part_that_no_pack_knows_is_refused():
    with pytest.raises(ValidationError, match="of_another_pack"):
        Evaluation.model_validate({"case_id": "a", "outcome": "passed", "of_another_pack": {"score": 1}})
    with pytest.raises(AttributeError, match="of_another_pack"):
        Evaluation(case_id="a", outcome="passed").of_another_pack  # noqa: B018


def test_graders_are_those_of_the_parts_and_those_that_apply():
    class Picky(Grader):
        def applies(self, case: Case) -> bool:
            return case.case_id == "t"

        async def grade(self, request: GradeRequest) -> Grade:
            return Grade()

    picky = Picky()
    assert [type(grader).__name__ for grader in graders_of(task("A"), {"picky": picky})] == ["ToolUseGrader", "Picky"]
    assert graders_of(task("A").model_copy(update={"parts": {}, "case_id": "u"}), {"picky": picky}) == ()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("after_turn", lambda self: None, "Late.after_turn is never called: derive from TurnGrader"),
        ("regrade", lambda self: None, "Late.regrade is never called: derive from FreeGrader"),
        ("decides", lambda self, case: False, "Late.decides: found a method, expected a value"),
    ],
)
def test_a_grader_with_a_method_that_nothing_calls_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Late", (Grader,), {name: value})


def test_a_grader_of_turns_also_grades_the_run_as_its_other_class_does() -> None:
    class Both(TurnGrader, FreeGrader):
        async def after_turn(self, case: Case, sandbox: Any, turn: Any) -> None:
            return None

        def compute(self, run: MeasuredRun) -> Grade:
            return Grade(failures=(run.case.case_id,))

    session: Any = None
    request = GradeRequest(case=task("A"), artifact=run(), services=session, job=session)
    assert asyncio.run(Both().grade(request)).failures == ("t",)
