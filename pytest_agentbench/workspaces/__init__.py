"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here."""

from pytest_agentbench.workspaces.archive import ArchiveError, pack, unpack
from pytest_agentbench.workspaces.building.base import ImageBuilder, LocalImage
from pytest_agentbench.workspaces.building.choice import image_builder
from pytest_agentbench.workspaces.by_command.client import engine_problem
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError
from pytest_agentbench.workspaces.copying import copy_tree
from pytest_agentbench.workspaces.diff import compare
from pytest_agentbench.workspaces.docker.compose import compose_digest, compose_problem
from pytest_agentbench.workspaces.docker.daemon import docker_problem
from pytest_agentbench.workspaces.docker.images import build_digest
from pytest_agentbench.workspaces.docker.local_images import has_image
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
    "pack",
    "session_is_dead",
    "shown_program",
    "take_snapshot",
    "template_digest",
    "unpack",
]
