"""The files of an agent's workspace that OpenClaw looks for, where the agent has none of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.runners.openclaw.agent import OpenClawAgent
from pytest_agentbench.workspaces import PathRefusedError, Workspace

PROMPT_FILE = "AGENTS.md"
"""The file that every session of OpenClaw begins with."""

_NAMES = (PROMPT_FILE, "IDENTITY.md", "SOUL.md", "TOOLS.md", "USER.md")

STANDARD_FILES: Mapping[str, str] = MappingProxyType(
    {name: f"# {name.removesuffix('.md')}\n\n(This agent has no {name}.)\n" for name in _NAMES}
)
"""What stands for each file that is missing: the same in every run, so that OpenClaw writes none of its own."""


def complete_workspace(workspace: Workspace, agent: OpenClawAgent, prompt_file: bool) -> None:
    """Adds the standard files that are missing; with `prompt_file` the agent's prompt becomes the head of AGENTS.md.

    Raises ConfigError for an AGENTS.md that nothing can be put into, OSError for want of room.
    """
    for name, text in STANDARD_FILES.items():
        if workspace.kind(name) is None:
            workspace.write_text(name, text)
    if prompt_file and agent.prompt is not None:
        _put_first(workspace, agent, f"{agent.prompt.rstrip()}\n\n".encode("utf-8", "replace"))


def _put_first(workspace: Workspace, agent: OpenClawAgent, head: bytes) -> None:
    try:
        workspace.write_bytes(PROMPT_FILE, head + workspace.read_bytes(PROMPT_FILE))
    except (PathRefusedError, IsADirectoryError, PermissionError) as error:
        raise ConfigError(
            f"{agent.workspace / PROMPT_FILE}: the agent's prompt becomes the head of this file, as its version of "
            f"OpenClaw takes it nowhere else, and that fails: {error}; make it a plain file that can be written"
        ) from error
