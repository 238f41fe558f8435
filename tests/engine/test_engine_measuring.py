from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.engine.evaluation import question_of
from pytest_agentbench.engine.job import judge_of
from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec


def case(*messages: tuple[str, str], turns: tuple[str, ...] = ()) -> Case:
    return Case(
        case_id="c",
        title="c",
        path=Path("test.yaml"),
        runner=RunnerSpec(type="llm_probe"),
        messages=tuple(Message(role=role, content=content) for role, content in messages),
        turns=tuple(Message(role="user", content=content) for content in turns),
    )


@pytest.mark.parametrize(
    ("given", "question"),
    [
        (case(("system", "Be brief."), ("user", "2 + 2?")), "2 + 2?"),
        (case(("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")), "2 + 2?"),
        (case(("user", "Read this:"), ("user", "2 + 2?")), "Read this:\n\n2 + 2?"),
        (case(("user", "2 + 2?"), turns=("And doubled?", "In words?")), "2 + 2?\n\nAnd doubled?\n\nIn words?"),
        (case(("user", "2 + 2?"), ("assistant", "It is")), "2 + 2?"),
        (case(("system", "Surprise me.")), ""),
    ],
)
def test_the_question_is_the_last_message_of_the_user(given, question):
    assert question_of(given) == question


def test_a_subject_that_names_its_judge_has_no_other():
    demo = Model(model_id="demo", requested_model="demo", scripted=True, judge="demo")
    paid = Model(model_id="gpt4o", requested_model="gpt-4o")
    assert [judge_of(subject, "claude") for subject in (demo, paid, None)] == ["demo", "claude", "claude"]
    assert [judge_of(subject, None) for subject in (demo, paid, None)] == ["demo", None, None]
