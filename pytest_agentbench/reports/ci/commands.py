"""Workflow commands of GitHub Actions: lines of a job's output that its runner obeys."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_agentbench.errors import visible

if TYPE_CHECKING:
    from pytest_agentbench.reports.table import Terminal

_LONGEST = 1_000
_COMMAND = re.compile(r"(?m)((?:^|\r)\s*):(?=:)|(?<=#)#(?=\[)")
"""The first colon of `::name`, the second hash of `##[name]`, which the runner knows too."""


def on_github(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a job of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def command(name: str, message: str, **properties: str | int | None) -> str:
    """A workflow command on one line. Nothing in message and properties can end it or begin another one."""
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{name}{' ' if given else ''}{given}::{_data(message)}"


def defused(text: str) -> str:
    """Text of others as a job may print it: what the runner would take for a command is escaped."""
    return _COMMAND.sub(lambda match: rf"{match[1] or ''}\x{ord(match[0][-1]):02x}", text)


@contextlib.contextmanager
def unheeded(terminal: Terminal) -> Iterator[None]:
    """Lines that are written here are no commands to GitHub's runner, whatever they hold; elsewhere nothing changes."""
    if not on_github():
        yield
        return
    token = secrets.token_hex(16)  # what follows cannot know it, so it cannot end this
    terminal.write_line(f"::stop-commands::{token}")
    try:
        yield
    finally:
        terminal.write_line(f"::{token}::")


def _data(text: str) -> str:
    cut = visible(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
