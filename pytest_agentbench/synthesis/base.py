"""What the stages of synthesis hand to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from pytest_agentbench.records import Record
from pytest_agentbench.tools.mcp import ServerTool

Stage = Literal["generation", "fuzzing", "gate"]
STAGES: tuple[Stage, ...] = ("generation", "fuzzing", "gate")
"""The requests of a draft, in order."""

Kind = Literal[
    "unparseable",
    "url",
    "local path",
    "street address",
    "absolute date",
    "unused server",
    "repetition",
    "name",
    "lost number",
    "solvability",
    "utility",
    "removed by hand",
]
"""Why a draft is rejected."""

Language = Literal["en", "zh"]


class Reason(Record):
    """One reason to reject a draft: the text says what was found and what to do."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A server by the name that it is declared under, and its tools."""

    server: str
    tools: tuple[ServerTool, ...]


class Combination(Record):
    """Servers that tasks are made for, at least one, in their order."""

    name: str
    servers: tuple[str, ...] = Field(min_length=1)
    description: str | None = None

    @property
    def type(self) -> str:
        """`single_server`, `two_server`, ..., as MCP-Bench's files have it."""
        counts = ("single", "two", "three", "four", "five")
        count = len(self.servers)
        return f"{counts[count - 1] if count <= len(counts) else count}_server"


class Generated(Record):
    """A detailed task. `dependencies` maps tool ids to those that have to succeed before."""

    task_description: str
    dependency_analysis: str
    dependencies: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Quality(Record):
    """What the gate says, scores from 1 to 10."""

    solvability: float
    utility: float
    solvability_feedback: str = ""
    utility_feedback: str = ""


class Verdict(Record):
    """How a draft ended: accepted where there is no reason against it. `stage` is the last that it reached."""

    stage: Stage
    reasons: tuple[Reason, ...] = ()
    generated: Generated | None = None
    fuzzy: str | None = None
    quality: Quality | None = None

    @property
    def accepted(self) -> bool:
        """Whether the draft is a task."""
        return not self.reasons
