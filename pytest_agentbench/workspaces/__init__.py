"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here."""

from pytest_agentbench.workspaces.archive import ArchiveError, pack, unpack
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import (
    WORKSPACE,
    ExecResult,
    Mount,
    Process,
    ResourceLimits,
    Sandbox,
    SandboxKind,
    SandboxSpec,
)
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.workspace import Entry, Kind, Workspace, Workspaces

__all__ = [
    "MAX_FILE_BYTES",
    "WORKSPACE",
    "ArchiveError",
    "Entry",
    "ExecResult",
    "Kind",
    "Mount",
    "PathRefusedError",
    "Process",
    "ResourceLimits",
    "Sandbox",
    "SandboxKind",
    "SandboxSpec",
    "Sandboxes",
    "Workspace",
    "Workspaces",
    "pack",
    "unpack",
]
