"""Replies of models, and the mistakes that are reported to them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthesis_samples import GIT, TIME

from pytest_agentbench.models.replies import InvalidReply
from pytest_agentbench.packs.mcp_bench.synthesis.base import Generated, Quality
from pytest_agentbench.packs.mcp_bench.synthesis.stages import (
    find_shortcomings,
    read_fuzzy,
    read_generated,
    read_quality,
)
from pytest_agentbench.packs.mcp_bench.wording import read_synthesis_wording

anything = st.text() | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["dependencies", "tool", "a"]), inner),
).map(json.dumps)


def generated(*dependencies: tuple[str, list[str]]) -> str:
    graph = [{"tool": tool, "prerequisites": prerequisites} for tool, prerequisites in dependencies]
    return json.dumps({"dependency_analysis": "a", "task_description": "b", "dependencies": graph})


def test_dependencies_by_tool_id_or_by_a_name_that_only_one_tool_has() -> None:
    reply = generated(("convert_time", ["Time:get_current_time"]), ("Git:search", []), ("convert_time", ["git_log"]))
    assert read_generated(reply, [TIME, GIT]) == Generated(
        dependency_analysis="a",
        task_description="b",
        dependencies={"Time:convert_time": ("Time:get_current_time", "Git:git_log")},
    )


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (generated(("Time:fly", ["search"])), "dependencies[0]: found 'Time:fly', expected one of the listed tools"),
        (generated(("search", ["search"])), "found the circle Git:search -> Git:search"),
        (generated(("search", ["git_log"]), ("git_log", ["search"])), "found the circle"),
        ('{"dependency_analysis": "", "task_description": "b", "dependencies": []}', "dependency_analysis"),
        ('{"dependency_analysis": "a", "dependencies": []}', "task_description: missing"),
        ("", "empty"),
    ],
)
def test_a_task_outside_the_form(reply: str, said: str) -> None:
    with pytest.raises(InvalidReply, match=re.escape(said)):
        read_generated(reply, [TIME, GIT])


@pytest.mark.slow
@settings(max_examples=50)
@given(anything)
def test_any_reply_is_read_or_refused(reply: str) -> None:
    for read in (read_quality, read_fuzzy, lambda text: read_generated(text, [TIME])):
        with suppress(InvalidReply):
            read(reply)


@given(st.floats(1, 10), st.floats(1, 10))
def test_the_gate_lets_through_from_nine_and_five(solvability: float, utility: float) -> None:
    reply = json.dumps({"solvability_score": solvability, "utility_score": utility})
    found = {reason.kind for reason in find_shortcomings(read_quality(f"```json\n{reply}\n```"))}
    assert found == {name for name, low in (("solvability", solvability < 9), ("utility", utility < 5)) if low}


def test_a_quality_on_both_thresholds_passes() -> None:
    assert list(find_shortcomings(Quality(solvability=9, utility=5))) == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<think>hm</think>\nWhat's up?", "What's up?"),
        ('"Could you look?"', "Could you look?"),
        ('"A" or "B"', '"A" or "B"'),
        ("\u201c你好\u201d", "你好"),
    ],
)
def test_a_fuzzy_text_is_the_reply_without_quotes(reply: str, said: str) -> None:
    assert read_fuzzy(reply) == said


@pytest.mark.parametrize("reply", ["", " \n", '""', "<think>nothing</think>"])
def test_no_fuzzy_text(reply: str) -> None:
    with pytest.raises(InvalidReply):
        read_fuzzy(reply)


def test_both_languages_have_the_same_slots() -> None:
    english, chinese = read_synthesis_wording("en"), read_synthesis_wording("zh")
    for field in fields(english)[:-1]:  # the last one holds prompts of files
        slots = [sorted(re.findall(r"\{\w+(?:!r)?\}", getattr(wording, field.name))) for wording in (english, chinese)]
        assert slots[0] == slots[1], field.name
        assert re.search("[\u4e00-\u9fff]", getattr(chinese, field.name))
        assert not re.search("[\u4e00-\u9fff]", getattr(english, field.name))
