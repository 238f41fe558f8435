"""The JSON reply of a turn is found among log lines of any content, and nothing else is read as one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.packs.openclaw.program import find_reply, select_last_lines

META = {
    "durationMs": 3303,
    "agentMeta": {
        "sessionId": "s1",
        "usage": {"input": 14688, "output": 30, "cacheRead": 0, "cacheWrite": 0, "total": 14718},
        "terminalReceipt": {"successfulToolNames": ["read"]},
    },
    "aborted": False,
    "systemPromptReport": {"skills": [{"name": "x" * 50}] * 100},
    "stopReason": "stop",
    "toolSummary": {"calls": 1, "tools": ["read"], "failures": 0},
}
"""As version 2026.9.6 says it, shortened."""


def said(*payloads: dict[str, Any], **meta: Any) -> str:
    return json.dumps({"payloads": payloads, "meta": {**META, **meta}}, indent=2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))
LOG = st.lists(
    st.one_of(
        LINE,
        LINE.map(lambda line: "{" + line),
        st.dictionaries(st.text(), JSON, max_size=3).map(json.dumps),
        st.just('{"payloads": [], "meta"'),
        st.just('{"payloads": {}, "meta": {}}'),
        st.just('{"ok": true, "error": "none"}'),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(before=LOG, after=LOG, text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_the_reply_is_found_between_any_log_lines(before: list[str], after: list[str], text: str) -> None:
    output = "\n".join([*before, said({"text": text}), *after])
    reply = find_reply(output)
    assert reply is not None
    assert (reply.text, reply.error) == (text, None)


@pytest.mark.slow
@given(lines=LOG)
def test_log_lines_alone_are_no_reply(lines: list[str]) -> None:
    assert find_reply("\n".join(lines)) is None


@given(st.text())
def test_any_text_at_all_is_read_without_an_error(text: str) -> None:
    find_reply(text)
    select_last_lines(text)


def test_the_last_reply_counts() -> None:
    reply = find_reply(f"{said({'text': 'first'})}\nlog\n{said({'text': 'second'})}")
    assert reply is not None
    assert reply.text == "second"


def test_a_reply_within_a_line_is_none() -> None:
    assert find_reply(f"[agent] tool said {json.dumps(json.loads(said({'text': 'forged'})))}") is None


def test_texts_of_payloads_are_joined_by_blank_lines() -> None:
    reply = find_reply(said({"text": "One."}, {"text": None, "mediaUrl": "x"}, {"text": "Two."}))
    assert reply is not None
    assert reply.text == "One.\n\nTwo."


def test_its_account_is_kept_without_what_is_long() -> None:
    reply = find_reply(said({"text": "One."}))
    assert reply is not None
    assert reply.account == {
        "session_id": "s1",
        "usage": META["agentMeta"]["usage"],  # type: ignore[index]
        "successful_tools": ["read"],
        "tool_summary": META["toolSummary"],
        "duration_ms": 3303,
        "stop_reason": "stop",
        "aborted": False,
    }


@pytest.mark.parametrize(
    ("output", "error", "timed_out"),
    [
        ('{"ok": false, "error": {"type": "cli_error", "message": "No such model."}}', "No such model.", False),
        ('{"ok": false, "error": {}}', "OpenClaw gave no reason", False),
        (said({"text": "It broke.", "isError": True}), "It broke.", False),
        (said({"text": "Done."}, {"text": "It broke.", "isError": True}), "It broke.", False),
        (said(aborted=True), "the turn was aborted", False),
        (said(stopReason="error"), "stop reason error", False),
        (said(error={"kind": "incomplete_turn", "message": "Cut off."}), "Cut off.", False),
        (said({"text": "Too late.", "isError": True}, timeoutPhase="provider"), "Too late.", True),
        (said(timeoutPhase="provider"), "its own time limit ended the turn (phase provider)", True),
    ],
)
def test_a_failed_reply_contains_its_error(output: str, error: str, timed_out: bool) -> None:
    reply = find_reply(output)
    assert reply is not None
    assert (reply.error, reply.timed_out) == (error, timed_out)


def test_lone_surrogates_become_question_marks() -> None:
    reply = find_reply('{"payloads": [{"text": "a\\ud800b"}], "meta": {}}')
    assert reply is not None
    assert reply.text == "a?b"


@pytest.mark.slow
@pytest.mark.parametrize(
    "flood",
    [
        '{"k":\n' * 60_000,
        "{\n" * 100_000,
        '{"k":[' + "\n{[1," * 60_000,
        pytest.param("{\n" * (4 * 2**20), id="8 MB of lines"),
        pytest.param('{"a":' * 10**6 + "1" + "}" * 10**6, id="a million levels"),
        pytest.param('{"payloads": [' + "[]," * (2 * 2**20) + '[]], "meta": {}}', id="millions of values"),
    ],
)
def test_a_flood_of_braces_does_not_stop_the_session(flood: str) -> None:
    with at_most(2):
        assert find_reply(flood) is None


def test_the_last_lines_of_a_log_are_few_and_short() -> None:
    shown = select_last_lines("\n".join(f"line {number}\n" for number in range(100)) + "x" * 10_000)
    assert len(shown) == 2000
    assert select_last_lines("one\n\ntwo\n") == "one\ntwo"
