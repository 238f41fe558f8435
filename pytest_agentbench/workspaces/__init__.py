"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here."""

from pytest_agentbench.workspaces.archive import ArchiveError, pack, unpack
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError
from pytest_agentbench.workspaces.containers.builder import ImageBuilder, LocalImage, image_builder
from pytest_agentbench.workspaces.containers.compose import compose_digest, compose_problem
from pytest_agentbench.workspaces.containers.daemon import docker_problem
from pytest_agentbench.workspaces.containers.engines import engine_problem, missing_engine
from pytest_agentbench.workspaces.containers.images import build_digest, has_image, is_local, not_built
from pytest_agentbench.workspaces.copying import copy_tree
from pytest_agentbench.workspaces.diff import compare
from pytest_agentbench.workspaces.sandboxes.base import (
    ExecResult,
    Mount,
    Process,
    ResourceLimits,
    Sandbox,
    SandboxKind,
    SandboxSpec,
)
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
from pytest_agentbench.workspaces.sandboxes.bwrap import closes_abstract_sockets
from pytest_agentbench.workspaces.sandboxes.capture import Capture
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sandboxes.showing import Shown, shown_program
from pytest_agentbench.workspaces.sessions import Workspaces, host_mark, session_is_dead
from pytest_agentbench.workspaces.snapshot import EMPTY, Snapshot, digest, take_snapshot
from pytest_agentbench.workspaces.template import fill, template_digest
from pytest_agentbench.workspaces.walking import TreeError
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, WORKSPACE, Entry, Kind, Workspace

__all__ = [
    "EMPTY",
    "MAX_FILE_BYTES",
    "PRIVATE_TMP",
    "WORKSPACE",
    "ArchiveError",
    "Capture",
    "Entry",
    "ExecResult",
    "ImageBuilder",
    "Kind",
    "LocalImage",
    "Mount",
    "PathRefusedError",
    "Process",
    "ResourceLimits",
    "Sandbox",
    "SandboxKind",
    "SandboxSpec",
    "Sandboxes",
    "Shown",
    "Snapshot",
    "TreeError",
    "Workspace",
    "Workspaces",
    "bubblewrap_problem",
    "build_digest",
    "closes_abstract_sockets",
    "compare",
    "compose_digest",
    "compose_problem",
    "copy_tree",
    "digest",
    "docker_problem",
    "engine_problem",
    "fill",
    "has_image",
    "host_mark",
    "image_builder",
    "is_local",
    "missing_engine",
    "not_built",
    "pack",
    "session_is_dead",
    "shown_program",
    "take_snapshot",
    "template_digest",
    "unpack",
]
