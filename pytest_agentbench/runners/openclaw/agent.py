"""The OpenClaw agent that a run is made with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.config import AgentFile, OpenClawRunProfile


@dataclass(frozen=True, slots=True)
class OpenClawAgent:
    """`file` is its agent.yaml at `path`, `workspace` the folder beside it, `profile` the run profile's block."""

    file: AgentFile
    path: Path
    workspace: Path
    profile: OpenClawRunProfile

    @property
    def openclaw_id(self) -> str:
        """What OpenClaw itself calls the agent: `openclaw.agent.id`, else the id of the folder."""
        return str(self.file.openclaw.agent.get("id") or self.file.agent_id)

    @property
    def prompt(self) -> str | None:
        """Its prompt, `openclaw.agent.prompt`; None where it has none."""
        prompt = self.file.openclaw.agent.get("prompt")
        return None if prompt is None else str(prompt)
