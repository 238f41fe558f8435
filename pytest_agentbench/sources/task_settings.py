"""What a session makes of MCP tasks: which text, which runner, which tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.config import ConfigRoot, RunProfile
from pytest_agentbench.records import McpServer, McpTask, Message, RunnerSpec
from pytest_agentbench.sources.mcp_tasks import TaskEntry

_MANUAL = "manual"


@dataclass(frozen=True, eq=False)
class TaskSettings:
    """`detailed` asks for the detailed text, `runner` runs the tasks, `servers` are those that files near them declare.

    Which other servers a task is offered is decided when it runs.
    """

    detailed: bool = False
    runner: str = "mcp_planner"
    servers: Mapping[str, McpServer] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, root: ConfigRoot, profile: RunProfile | None = None) -> TaskSettings:
        """Those of a task file below `root`; None is the default profile. Raises ConfigError."""
        profile = profile or RunProfile.default()
        root.require_servers(path)
        return cls(
            detailed=profile.task_text == "detailed",
            runner="llm_probe" if profile.runner_defaults.get("type") == "llm_probe" else cls.runner,
            servers=root.mcp_servers(path),
        )

    def tags(self, entry: TaskEntry) -> tuple[str, ...]:
        """The task's own tags; its servers, their categories and its combination type; whether it has several."""
        categories = {self.servers[name].category for name in entry.servers if name in self.servers}
        named = {*entry.servers, *categories, entry.combination_type}
        several = "multi_server" if len(entry.servers) > 1 else "single_server"
        return tuple(sorted({*entry.tags, *map(_tag, filter(None, named)), several}))

    def case_fields(self, entry: TaskEntry) -> dict[str, Any]:
        """What the task's case has beside its id and place."""
        return {
            "runner": RunnerSpec(type=self.runner),
            "messages": (Message(role="user", content=self.text(entry)),),
            "mcp_servers": dict.fromkeys(entry.servers),
            "mcp_task": McpTask(
                servers=entry.servers,
                distraction_servers=entry.distraction_servers,
                fuzzy=entry.fuzzy_description,
                detailed=entry.task_description,
                dependency_analysis=entry.dependency_analysis,
                dependencies=entry.dependencies,
                combination_name=entry.combination_name,
                combination_type=entry.combination_type,
            ),
            "metadata": entry.model_extra or {},
        }

    def text(self, entry: TaskEntry) -> str:
        """What the agent is asked: the text that the profile wants, else the one that there is."""
        texts = [entry.fuzzy_description, entry.task_description]
        if self.detailed:
            texts.reverse()
        return next(text for text in texts if text and text.strip())


def _tag(name: str) -> str:
    """The name as -k and -m can be given it. `manual` would keep the task from running unasked."""
    tag = re.sub(r"[^\w.+]+", "-", name.lower()).strip("-_.+") or "server"
    return f"{tag}-server" if tag == _MANUAL else tag
