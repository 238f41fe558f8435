"""What hand-written tests get of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import FileChange, RunArtifact, ToolCallEvent, Usage

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.workspace import Workspace


@dataclass(frozen=True)
class Run:
    """A finished run. `artifact` is the whole record, `evaluation` what the case's own checks and judge say of it."""

    case: Case
    artifact: RunArtifact
    evaluation: Evaluation | None
    made_workspace: Workspace | None

    @property
    def output(self) -> str:
        """Return the final answer, empty where there is none."""
        return self.artifact.final_output or ""

    @property
    def tool_calls(self) -> tuple[ToolCallEvent, ...]:
        """Return all tool calls, in order."""
        return self.artifact.tool_calls

    @property
    def usage(self) -> Usage:
        """Return tokens and cost."""
        return self.artifact.usage

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """Return what the run did to the files of its workspace, sorted by path; nothing where it used none."""
        return self.artifact.changes or ()

    @property
    def workspace(self) -> Workspace:
        """Return the folder the run worked in. Raises LookupError where the run never used one."""
        if self.made_workspace is None:
            raise LookupError(f"the run of {self.case.case_id!r} used no workspace")
        return self.made_workspace
