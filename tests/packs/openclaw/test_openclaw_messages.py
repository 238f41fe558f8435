"""The message to OpenClaw in each turn."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from openclaw_support import turns
from runners.runners_support import make_case

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.openclaw.turns import list_turn_texts
from pytest_agentbench.records.case import Attachment, Message

HINT = {"openclaw": {"expected_artifact": "report.md"}}
SYSTEM = Message(role="system", content="Be brief.")


def attachment(folder: Path) -> Attachment:
    path = folder / "facts.txt"
    path.write_text("Water is wet.", encoding="utf-8")
    return Attachment(name="facts.txt", path=path, size=13, sha256=hashlib.sha256(b"Water is wet.").hexdigest())


ATTACHED = (
    "Attached context file: facts.txt\n--- BEGIN ATTACHMENT facts.txt ---\nWater is wet.\n"
    "--- END ATTACHMENT facts.txt ---"
)


def test_a_user_message_alone_is_its_text() -> None:
    assert list_turn_texts(make_case(text="Go.")) == ["Go."]


def test_several_messages_are_one_text_with_their_roles() -> None:
    messages = (SYSTEM, Message(role="user", content="Hi.", name="Ann"), Message(role="assistant", content="Yes?"))
    assert list_turn_texts(make_case(messages=messages)) == [
        "[system]\nBe brief.\n\n[user Ann]\nHi.\n\n[assistant]\nYes?"
    ]


def test_attachments_come_before_the_first_user_message_and_the_hint_last(tmp_path: Path) -> None:
    case = make_case(
        messages=(SYSTEM, Message(role="user", content="Go.")), attachments=(attachment(tmp_path),), context=HINT
    )
    [text] = list_turn_texts(case)
    assert text == (
        f"[system]\nBe brief.\n\n[user]\n{ATTACHED}\n\n[user]\nGo.\n\nExpected artifact in the workspace: report.md"
    )


def test_messages_attachments_and_hint_come_with_the_first_turn_only(tmp_path: Path) -> None:
    case = turns("Draft.", "Revise.", "Finish.", attachments=(attachment(tmp_path),), context=HINT)
    case = case.model_copy(update={"messages": (SYSTEM,)})
    first, *others = list_turn_texts(case)
    assert first == (
        f"[system]\nBe brief.\n\n[user]\n{ATTACHED}\n\n[user]\nDraft.\n\nExpected artifact in the workspace: report.md"
    )
    assert others == ["Revise.", "Finish."]


def test_turns_need_no_messages() -> None:
    assert list_turn_texts(turns("Draft.", "Revise.")) == ["Draft.", "Revise."]


def test_a_case_with_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"input\.messages: found none"):
        list_turn_texts(make_case(messages=()))


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_turn_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"input: turn 2 is empty, and OpenClaw accepts no empty message"):
        list_turn_texts(turns("Draft.", text))
    with pytest.raises(ConfigError, match="turn 1 is empty"):
        list_turn_texts(make_case(text=text))
