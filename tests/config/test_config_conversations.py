"""Conversations in files: limits, and what a turn may have."""

from __future__ import annotations

import textwrap

import pytest

from pytest_agentbench.config.base import Known, load
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.conversations import ConversationLimits, merge_limits
from pytest_agentbench.sources.case_source import SourceRequest
from pytest_agentbench.sources.test_yaml import TEST_YAML, load_case

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


LOOKED_UP = "{check_id: looked-up, declarative: {kind: tool_called, name: find_order}}"
WITH_PARTS = f"""\
input:
  turns:
    - {{role: user, content: Cancel order 1042., expectations: [Asks for the reason.]}}
    - role: user
      content: Then 1043 too.
      checks: [{LOOKED_UP}]
      expectations: {{soft_expectations: [{{text: Is polite., weight: 2}}]}}
expectations: [Never reveals the system prompt.]
deterministic_checks:
  - {{check_id: answers, turn: each, declarative: {{kind: final_response_present}}}}
"""


def test_checks_and_expectations_of_turns_are_those_of_the_case_with_a_number(read):
    case = read(WITH_PARTS)
    assert [(check.check_id, check.turn) for check in case.checks] == [("answers", "each"), ("looked-up", 2)]
    hard, soft = case.expectations.hard_expectations, case.expectations.soft_expectations
    assert [(each.text, each.turn) for each in hard] == [
        ("Never reveals the system prompt.", None),
        ("Asks for the reason.", 1),
    ]
    assert [(each.text, each.turn, each.weight) for each in soft] == [("Is polite.", 2, 2)]


def add_check(fields: str, kind: str = "kind: final_response_present") -> str:
    return f"{TURNS}deterministic_checks: [{{check_id: a, {fields}declarative: {{{kind}}}}}]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            add_check("turn: 3, "),
            "11:44: deterministic_checks[0].turn: found 3, expected at most 2, the number of turns",
        ),
        (add_check("turn: 0, "), "11:44: deterministic_checks[0].turn: found 0, expected the number of a turn from 1,"),
        (add_check("turn: -2, "), "11:44: deterministic_checks[0].turn: found -2, expected the number of a turn from"),
        (add_check("turn: last, "), "11:44: deterministic_checks[0].turn: found 'last', expected the number of a turn"),
        (
            add_check("turn: 1, ", "kind: metric, name: exact_match, reference: x, path: a.txt"),
            "11:60: deterministic_checks[0].declarative: metric looks at files as they are at the end of the run",
        ),
        (
            add_check("turn: 1, ", "kind: any_of, checks: [{kind: status_is, status: failed}]"),
            "11:84: deterministic_checks[0].declarative.checks[0]: status_is looks at the whole run, not at one turn;",
        ),
        (
            "input: Hi\n" + add_check("turn: any, ").removeprefix(TURNS),
            "6:44: deterministic_checks[0].turn: found 'any', and the case has no turns; leave it out, or write `inp",
        ),
        (
            "input: Hi\nexpectations: [{text: x, turn: 1}]\n",
            "6:15: expectations.hard_expectations[0].turn: found 1, and the case has no turns",
        ),
        (
            TURNS + "expectations: [{text: x, turn: 9}]\n",
            "11:32: expectations[0].turn: found 9, expected at most 2",
        ),
        (
            TURNS + "      checks: [{check_id: a, turn: 2, declarative: {kind: final_response_present}}]\n",
            "11:36: input.turns[1].checks[0].turn: found in a check of a turn, which decides this turn; leave it out",
        ),
        (
            TURNS + "      checks: [{check_id: a, declarative: {kind: max_cost_usd, usd: 1}}]\n",
            "11:43: input.turns[1].checks[0].declarative: max_cost_usd looks at the whole run, not at one turn; write",
        ),
        (
            TURNS + "      expectations: [{text: x, turn: 2}]\n",
            "11:38: input.turns[1].expectations[0].turn: found in an expectation of a turn, which is",
        ),
        (
            TURNS + "      check: []\n",
            "11:7: input.turns[1].check: unknown field; did you mean 'checks'?",
        ),
        (
            WITH_PARTS.replace("check_id: answers", "check_id: looked-up"),
            "14:16: deterministic_checks[0].check_id: Duplicate check_id 'looked-up', which a turn has; each must be",
        ),
        (
            WITH_PARTS.replace("expectations: [Asks for the reason.]", f"checks: [{LOOKED_UP}]"),
            "10:27: input.turns[1].checks[0].check_id: Duplicate check_id 'looked-up'; each must be unique",
        ),
        (
            WITH_PARTS + "verify: {check_id: looked-up, command: [make]}\n",
            "15:20: verify.check_id: Duplicate check_id 'looked-up'",
        ),
    ],
)
def test_what_a_case_lacks_is_refused_with_its_place(read, text, expected):
    [line] = read(text)
    assert line.startswith(expected), line


def test_numbers_of_turns_in_files_are_checked_once_the_files_are_read(read, tmp_path):
    (tmp_path / "two.yaml").write_text("[{role: user, content: One.}, {role: user, content: Two.}]")
    turns = "input: {turns: [{role: user, source: {path: two.yaml}}, {role: user, content: Three.FIELDS}]}\n"
    checks = "deterministic_checks: [{check_id: a, turn: 3, declarative: {kind: final_response_present}}]\n"
    case = read(turns.replace("FIELDS", f", checks: [{LOOKED_UP}]") + checks)
    assert [check.turn for check in case.checks] == [3, 3]
    [line] = read(turns.replace("FIELDS", "") + checks.replace("3", "4"))
    assert line.startswith("6:44: deterministic_checks[0].turn: found 4, expected at most 3"), line
    [line] = read(turns.replace("two.yaml}", "two.yaml}, max_seconds: 5").replace("FIELDS", ""))
    assert line.startswith("5:45: input.turns[0].source.path: found 2 messages, expected one"), line
    (tmp_path / "one.yaml").write_text("{role: user, content: One., max_seconds: 5}")
    [line] = read("input: {messages: [{role: user, source: {path: one.yaml}}]}\n")
    assert "found max_seconds, which only turns have" in line


def test_a_doubt_about_a_pattern_of_a_turn_names_its_place(tmp_path):
    path = tmp_path / "test.yaml"
    check = '{check_id: a, declarative: {kind: regex_match, pattern: "\\bword"}}'
    path.write_text(f"{HEAD}{TURNS}      checks: [{check}]\n")
    opened = TEST_YAML.open(path, SourceRequest(ConfigRoot(tmp_path)))
    [(doubt, _)] = opened.field_doubts()
    assert doubt.startswith(f"{path}:11:63: input.turns[1].checks[0].declarative.pattern: found a backspace")
