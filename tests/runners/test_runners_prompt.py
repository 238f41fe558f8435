"""Messages and attachments, as the reference formats them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from runners_support import make_case

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Attachment, Message
from pytest_agentbench.runners.chat import render_messages


def attach(path: Path, content: bytes) -> Attachment:
    path.write_bytes(content)
    return Attachment(name=path.name, path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def test_attachments_come_just_before_the_first_user_message(tmp_path: Path) -> None:
    case = make_case(
        messages=(
            Message(role="system", content="S"),
            Message(role="user", content="U1", name="ann"),
            Message(role="assistant", content="A"),
            Message(role="user", content="U2"),
        ),
        attachments=(attach(tmp_path / "a.txt", b"one\r\ntwo\n"), attach(tmp_path / "b.md", "ñ".encode())),
    )
    assert render_messages(case) == [
        {"role": "system", "content": "S"},
        {
            "role": "user",
            "content": "Attached context file: a.txt\n--- BEGIN ATTACHMENT a.txt ---\none\r\ntwo\n\n"
            "--- END ATTACHMENT a.txt ---",
        },
        {
            "role": "user",
            "content": "Attached context file: b.md\n--- BEGIN ATTACHMENT b.md ---\nñ\n--- END ATTACHMENT b.md ---",
        },
        {"role": "user", "content": "U1", "name": "ann"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "U2"},
    ]


def test_attachments_come_last_where_no_user_speaks(tmp_path: Path) -> None:
    attachment = attach(tmp_path / "a.txt", b"x")
    rendered = render_messages(make_case(messages=(Message(role="system", content="S"),), attachments=(attachment,)))
    assert [message["role"] for message in rendered] == ["system", "user"]


def test_a_binary_attachment_is_an_error_of_the_case(tmp_path: Path) -> None:
    case = make_case(tmp_path, attachments=(attach(tmp_path / "logo.png", b"\x89PNG\x0d"),))
    with pytest.raises(ConfigError, match=r"test.yaml:1:1: input.attachments: found 'logo.png', which is not UTF-8"):
        render_messages(case)


def test_an_attachment_that_changed_or_went_is_an_error_of_the_case(tmp_path: Path) -> None:
    case = make_case(tmp_path, attachments=(attach(tmp_path / "a.txt", b"x"),))
    (tmp_path / "a.txt").write_bytes(b"y")
    with pytest.raises(ConfigError, match=r"'a\.txt' changed after the case was loaded"):
        render_messages(case)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(ConfigError, match=r"cannot read 'a\.txt': No such file"):
        render_messages(case)


def test_a_case_without_messages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"input\.messages: found none"):
        render_messages(make_case(messages=()))
