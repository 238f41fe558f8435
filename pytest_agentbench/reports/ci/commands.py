"""Workflow commands of GitHub Actions: lines of a job's output that its runner obeys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.terminal_text import legible, unheeded

if TYPE_CHECKING:
    from pytest_agentbench.reports.table import Terminal

_LONGEST = 1_000


def on_github(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a job of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def command(name: str, message: str, **properties: str | int | None) -> str:
    """A workflow command on one line. Nothing in message and properties can end it or begin another one."""
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{name}{' ' if given else ''}{given}::{_data(message)}"


class Unheeded:
    """A terminal, no line of which a CI takes for a command, whatever it holds."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def write(self, content: str, *, flush: bool = False, **markup: bool) -> None:
        """Text that others follow in the same line."""
        self._terminal.write(unheeded(content), flush=flush, **markup)

    def write_line(self, line: str, **markup: bool) -> None:
        """A line of its own."""
        self._terminal.write_line(unheeded(line), **markup)


def _data(text: str) -> str:
    cut = legible(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
