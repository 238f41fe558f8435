"""Thoughts in a model's text, told apart from its answer."""

from __future__ import annotations

import json

import pytest
from support.cpu_seconds import at_most

from pytest_agentbench.models.messages import read_message
from pytest_agentbench.models.replies import read_json_object
from pytest_agentbench.models.thoughts import drop_thoughts, split_thoughts

THOUGHTS = "The user asks.. maybe Lyon?"


@pytest.mark.parametrize(
    ("text", "answer", "thoughts"),
    [
        (f"<think>{THOUGHTS}</think>\n\nParis", "Paris", THOUGHTS),
        (f"\n<thinking>\n{THOUGHTS}\n</thinking>Paris", "Paris", THOUGHTS),
        (f"<reasoning>{THOUGHTS}</reasoning>Paris", "Paris", THOUGHTS),
        (f"<think>{THOUGHTS}</thinking>Paris", "Paris", THOUGHTS),
        (f"{THOUGHTS}\n</think>\n\nParis", "Paris", THOUGHTS),
        (f"{THOUGHTS}</think>Paris", "Paris", THOUGHTS),
        (f"{THOUGHTS}</thinking>\nParis", "Paris", THOUGHTS),
        ("</think>\n\nParis", "Paris", ""),
        ("Lyon</think>Nice</think>Paris", "Paris", "Lyon</think>Nice"),
        (f"{THOUGHTS}</think>", "", THOUGHTS),
        ('{"city": "Lyon"} or\n</think>\n{"city": "Paris"}', '{"city": "Paris"}', '{"city": "Lyon"} or'),
        ("Say `</think>` at the end.\n</think>\nParis", "Paris", "Say `</think>` at the end."),
        ("```\nx\n```\n</think>Paris", "Paris", "```\nx\n```"),
    ],
)
def test_thoughts_are_separated_from_the_answer(text, answer, thoughts):
    assert split_thoughts(text) == (answer, thoughts)
    assert drop_thoughts(text).strip() == answer or "<reasoning>" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris",
        "<think>It never ends",
        "<b>Paris</b>",
        "Thoughts end in `</think>`.",
        'The tag is "</think>", as in HTML.',
        "Paris <think>or Lyon?</think> it is.",
        "```html\n<p></think></p>\n```",
        json.dumps({"reason": "it ends in </think> and goes on", "correct": True}),
        json.dumps([{"text": "x</think>y"}], indent=1),
        "a </reasoning> b",
    ],
)
def test_other_text_has_no_thoughts(text):
    assert split_thoughts(text) == (text, None)


@pytest.mark.parametrize("text", ["<think>It never", "\n<reasoning>It never", "<thinking>It never"])
def test_a_block_without_an_end_is_thoughts_if_the_reply_was_cut_off(text):
    assert split_thoughts(text, cut_off=True) == ("", "It never")


def test_a_prediction_loses_all_up_to_its_last_thoughts():
    assert drop_thoughts("A <think>no</think> B <think>yes</think> C") == " C"
    assert drop_thoughts(" <think>It never ends") == ""
    assert drop_thoughts("A <think> B") == "A <think> B"


def test_thoughts_without_a_beginning_are_no_part_of_a_reply():
    read = read_message({"role": "assistant", "content": f"{THOUGHTS}\n</think>\n\nParis"}, "stop")
    assert (read.content, read.thoughts, read.end) == ("Paris", THOUGHTS, "answered")
    read = read_message({"role": "assistant", "content": f"{THOUGHTS}</think>"}, "stop")
    assert (read.content, read.thoughts, read.end) == ("", THOUGHTS, "empty")


def test_the_object_in_a_reply_is_the_one_after_the_thoughts():
    assert read_json_object('{"a": 1}? No.\n</think>\n{"a": 2}') == {"a": 2}
    assert read_json_object('Hm.</think>```json\n{"a": 2}\n```') == {"a": 2}
    quoted = {"summary": "it says </think>{} at its end"}
    assert read_json_object(json.dumps(quoted)) == quoted
    assert read_json_object(f"```json\n{json.dumps(quoted)}\n```") == quoted


@pytest.mark.parametrize("text", ["</think>" * 100_000, "<think>" * 100_000, "[" * 100_000 + "</think>", "<" * 10**6])
def test_hostile_text_is_read_in_no_time(text):
    with at_most(1):
        split_thoughts(text)
        drop_thoughts(text)
