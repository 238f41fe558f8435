"""Conversations in files: limits, and what a turn may have."""

from __future__ import annotations

import textwrap

import pytest

from pytest_agentbench.config.base import Known, load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.conversations import ConversationLimits, merge_limits
from pytest_agentbench.sources.test_yaml import load_case

HEAD = """\
schema_version: 1
case_id: orders
title: Orders
runner: {type: my_agent}
"""
TURNS = """\
input:
  turns:
    - {role: user, content: Cancel order 1042.}
    - role: user
      content: Then 1043 too.
      max_seconds: 30
"""


@pytest.fixture
def read(tmp_path):
    """Load the case of a text; return it, or the lines of its error without the file's name."""
    path = tmp_path / "test.yaml"

    def load_text(text: str) -> Case | list[str]:
        path.write_text(HEAD + textwrap.dedent(text))
        try:
            return load_case(path, ConfigRoot(tmp_path), Known())
        except ConfigError as error:
            return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]

    return load_text


def test_a_turn_and_a_conversation_have_limits(read):
    case = read(TURNS + "conversation: {max_turns: 5}\n")
    assert [turn.max_seconds for turn in case.turns] == [None, 30]
    assert case.conversation == ConversationLimits(max_turns=5)
    assert Case.model_validate_json(case.model_dump_json()) == case


def test_the_cases_limits_take_precedence_over_the_profiles(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(
        "schema_version: 1\nrun_profile_id: a\ntitle: A\nconversation: {max_turns: 5, turn_timeout_seconds: 9}\n"
    )
    profile = load(path, RunProfile)
    merged = merge_limits(profile.conversation, ConversationLimits(max_turns=7))
    assert (merged.max_turns, merged.turn_timeout_seconds, merged.max_steps) == (7, 9, 200)
    assert merge_limits(None, None) == ConversationLimits()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TURNS.replace("30", "0"), "10:20: input.turns[1].max_seconds: found 0, expected more than 0"),
        (TURNS + "conversation: {max_turn: 5}\n", "11:16: conversation.max_turn: unknown field; did you mean 'max_tu"),
        (TURNS + "conversation: {max_steps: 0}\n", "11:27: conversation.max_steps: found 0, expected at least 1"),
        ("input: Hi\nconversation: {max_turns: 5}\n", "6:15: conversation: limits turns, and the case has none; leave"),
    ],
)
def test_wrong_limits_are_refused_with_their_place(read, text, expected):
    [line] = read(text)
    assert line.startswith(expected), line


def test_the_schema_for_editors_has_the_fields_of_a_turn():
    fields = TestCaseFile.model_json_schema()["$defs"]["TurnSpec"]["properties"]
    assert {"role", "content", "max_seconds"} <= fields.keys()
