"""The parts of a run that graders look at: its answer, messages, calls, created files and the workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_agentbench.packs.plugin_evals.mock_server import BROKEN
from pytest_agentbench.packs.plugin_evals.records import SKILL_TOOL, FileTarget, Target, ToolCalls
from pytest_agentbench.records.run import (
    WORKSPACE_NOTE,
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from pytest_agentbench.records.skill_uses import SKILL_EVENT
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.workspace import Workspace

_PORTABLE = {"Bash": "shell", "Read": "read", "Write": "write", "Edit": "edit"}
"""Claude Code's tools with a portable name, by which other programs have an equal tool."""


_PORTABLE_OF_PROBE = {"read_file": "read", "write_file": "write"}
"""The same for tools of `llm_probe`, by its names."""


class NoTargetError(Exception):
    """Error of a run without the text that a grader looks at."""


class NotComparableError(Exception):
    """Error of a run in which the calls of a grader cannot be recognised; the grader is skipped."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool: its place in the run, and its input as compact JSON."""

    at: int
    input: str


@dataclass(frozen=True)
class RunEvidence:
    """A run, and its workspace as the agent left it (None without one). `mock_tools` are the case's mocked tools."""

    artifact: RunArtifact
    workspace: Workspace | None
    mock_tools: frozenset[str] = frozenset()

    def read(self, target: Target) -> str:
        """Return the text of a target. Raises NoTargetError if the run has none."""
        if isinstance(target, FileTarget):
            return self._read_file(target.path)
        if target == "last_message":
            return self.artifact.final_output or ""
        if target == "files":
            return "\n".join(self.created_files)
        lines = self._messages() if target == "trace" else self._mock_calls()
        return "\n".join(_write_json(line) for line in lines)

    def _read_file(self, path: str) -> str:
        if self.workspace is None:
            raise NoTargetError(f"{path} does not exist: the run made no workspace")
        try:
            return self.workspace.read_text(path)
        except (FileNotFoundError, NotADirectoryError):
            raise NoTargetError(f"{path} does not exist in the workspace") from None
        except UnicodeDecodeError:
            raise NoTargetError(f"{path} is not UTF-8") from None
        except (PathRefusedError, OSError) as error:
            raise NoTargetError(f"{path} cannot be read: {error}") from error

    @cached_property
    def created_files(self) -> list[str]:
        """Return the paths of files that the run created. Raises NoTargetError if they are unknown."""
        if self.artifact.changes is None:
            note = self.artifact.metadata.get(WORKSPACE_NOTE) or {}
            if (reason := note.get("not_compared")) is not None:
                raise NoTargetError(f"the files of the run are unknown: {reason}")
            return []
        return [
            change.path
            for change in self.artifact.changes
            if change.change in ("added", "renamed") and change.after is not None and change.after.kind == "file"
        ]

    def find_calls(self, wanted: ToolCalls, pattern: Any | None, seconds: float) -> list[Call]:
        """Return the calls of a tool whose input matches the compiled pattern.

        Raises NotComparableError for a pattern on the input of another program's tool, TimeoutError.
        """
        calls = self._skill_loads() if wanted.tool == SKILL_TOOL else self._calls_of(wanted)
        if pattern is None:
            return calls
        return [call for call in calls if pattern.search(call.input, timeout=seconds)]

    def _calls_of(self, wanted: ToolCalls) -> list[Call]:
        names: dict[str, str] = self.artifact.request.get("portable") or _PORTABLE_OF_PROBE
        portable = _PORTABLE.get(wanted.tool)
        calls = []
        for event in self.artifact.trace:
            if not isinstance(event, ToolCallEvent):
                continue
            is_same = wanted.tool in (event.name, _name_as_claude(event.name))
            is_equal = portable is not None and names.get(event.name) == portable
            if is_equal and not is_same and wanted.input_match is not None:
                raise NotComparableError(
                    f"the program's tool {event.name} has another input than Claude Code's {wanted.tool}, "
                    "so input_match cannot be compared"
                )
            if is_same or is_equal:
                calls.append(Call(event.sequence, _write_json(event.arguments or {})))
        return calls

    def _skill_loads(self) -> list[Call]:
        """Return the loads of skills, as calls of Claude Code's tool."""
        return [
            Call(event.sequence, _write_json({"skill": event.data.get("skill")}))
            for event in self.artifact.trace
            if isinstance(event, RunnerEvent) and event.name == SKILL_EVENT and event.data.get("fact") == "loaded"
        ]

    def _messages(self) -> Iterator[dict[str, Any]]:
        for event in self.artifact.trace:
            if isinstance(event, MessageEvent):
                yield {"role": event.role, "content": event.content}
            elif isinstance(event, ToolCallEvent):
                yield {"role": "assistant", "tool": event.name, "input": event.arguments or {}}
            elif isinstance(event, ToolResultEvent):
                yield {"role": "tool", "tool": event.name, "content": event.content}

    def _mock_calls(self) -> Iterator[dict[str, Any]]:
        for event in self.artifact.trace:
            if isinstance(event, ToolCallEvent) and (name := _name_as_claude(event.name)) in self.mock_tools:
                yield {"tool": name, "input": event.arguments or {}}

    def list_broken_mocks(self) -> list[str]:
        """Return the answers of mocks to calls that they do not expect."""
        return [
            event.content
            for event in self.artifact.trace
            if isinstance(event, ToolResultEvent)
            and _name_as_claude(event.name) in self.mock_tools
            and event.content.startswith(BROKEN)
        ]


def _name_as_claude(name: str) -> str:
    """Return the name of an MCP server's tool (`SERVER:TOOL`) as Claude Code has it; other names as they are."""
    server, separator, tool = name.partition(":")
    return f"mcp__{server}__{tool}" if separator else name


def _write_json(value: Any) -> str:
    """Return JSON as JavaScript's `JSON.stringify` writes it, for which patterns are made."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def matches_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern with `*` and `?` within a name, and `**` for any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./"))
    wild = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.fullmatch("".join(wild.get(part) or re.escape(part) for part in parts), path, re.DOTALL) is not None
