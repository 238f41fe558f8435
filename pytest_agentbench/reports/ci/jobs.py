"""The job of CI that a session runs in: where cases stand in its checkout, and the commands that its runner obeys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_agentbench.terminal_text import defuse_ci_commands, legible

if TYPE_CHECKING:
    from pytest_agentbench.reports.table import Terminal


_WORKSPACES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "WORKSPACE")
"""The folder of the repository, as GitHub, GitLab and Jenkins name it."""


class Places:
    """Finds the places of runs whose node ids begin at `root` (pytest's root directory)."""

    def __init__(self, root: Path, environ: Mapping[str, str] = os.environ) -> None:
        workspace = next((environ[name] for name in _WORKSPACES if environ.get(name)), None)
        self._above = None if workspace is None else os.path.relpath(root.resolve(), Path(workspace).resolve())
        self._tree = _tree_address(environ)

    def path(self, row: Mapping[str, Any]) -> str:
        """Return the file of the run's case: from the repository's folder where CI names it, else from pytest's."""
        return self.in_repository(row["nodeid"].partition("::")[0])

    def in_repository(self, file: str) -> str:
        """Return the path in the repository of a file that is named from pytest's root directory."""
        return file if self._above is None else os.path.normpath(os.path.join(self._above, file)).replace(os.sep, "/")

    def line(self, row: Mapping[str, Any]) -> int | None:
        """Return the line of the case, from 1; None where an older version wrote the report."""
        line: int | None = row.get("line")
        return line

    def link(self, row: Mapping[str, Any]) -> str | None:
        """Return the address of the case's line at the tested commit; None outside of GitHub, GitLab and the
        repository.
        """
        return self.address(self.path(row), self.line(row))

    def address(self, path: str, line: int | None) -> str | None:
        """Return the address of a path in the repository."""
        if self._tree is None or self._above is None or leads_outside(path):
            return None
        return f"{self._tree}/{quote(path)}" + ("" if line is None else f"#L{line}")


def leads_outside(path: str) -> bool:
    """Return whether a path, as `Places` gives it, leads out of the repository."""
    return path.startswith(("../", "/"))


def _tree_address(environ: Mapping[str, str]) -> str | None:
    """Return the address below which the tested commit's files are."""
    if environ.get("GITHUB_REPOSITORY") and environ.get("GITHUB_SHA"):
        server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
        return f"{server}/{environ['GITHUB_REPOSITORY']}/blob/{environ['GITHUB_SHA']}"
    if environ.get("CI_PROJECT_URL") and environ.get("CI_COMMIT_SHA"):
        return f"{environ['CI_PROJECT_URL']}/-/blob/{environ['CI_COMMIT_SHA']}"
    return None


_LONGEST = 1_000


def on_github(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is a job of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def workflow_command(name: str, message: str, **properties: str | int | None) -> str:
    """Return a workflow command on one line. Nothing in message and properties can end it or begin another one."""
    given = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{name}{' ' if given else ''}{given}::{_data(message)}"


class CommandFreeTerminal:
    """A terminal, no line of which a CI takes for a command, whatever it holds."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def write(self, content: str, *, flush: bool = False, **markup: bool) -> None:
        """Text that others follow in the same line."""
        self._terminal.write(defuse_ci_commands(content), flush=flush, **markup)

    def write_line(self, line: str, **markup: bool) -> None:
        """Write a line of its own."""
        self._terminal.write_line(defuse_ci_commands(line), **markup)


def _data(text: str) -> str:
    cut = legible(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
