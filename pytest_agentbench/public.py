"""The run of a case, for hand-written tests."""

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
    """A finished run. `artifact` is the whole record, `evaluation` the verdict of the case's own checks and judge."""

    case: Case
    artifact: RunArtifact
    evaluation: Evaluation | None
    made_workspace: Workspace | None

    @property
    def output(self) -> str:
        """Return the final answer, "" if there is none."""
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
        """Return the run's changes to the files of its workspace, sorted by path; () without a workspace."""
        return self.artifact.changes or ()

    @property
    def workspace(self) -> Workspace:
        """Return the workspace folder of the run. Raises LookupError if the run used none."""
        if self.made_workspace is None:
            raise LookupError(f"the run of {self.case.case_id!r} used no workspace")
        return self.made_workspace
