"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here."""

from pytest_agentbench.workspaces.archive import ArchiveError, pack, unpack
from pytest_agentbench.workspaces.choice import sandbox_for
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError
from pytest_agentbench.workspaces.sandbox import ExecResult, ResourceLimits, Sandbox
from pytest_agentbench.workspaces.workspace import Entry, Kind, Workspace, Workspaces

__all__ = [
    "MAX_FILE_BYTES",
    "ArchiveError",
    "Entry",
    "ExecResult",
    "Kind",
    "PathRefusedError",
    "ResourceLimits",
    "Sandbox",
    "Workspace",
    "Workspaces",
    "pack",
    "sandbox_for",
    "unpack",
]
