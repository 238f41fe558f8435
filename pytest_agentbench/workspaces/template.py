"""The folder that a run's workspace starts as a copy of."""

from __future__ import annotations

import errno
from pathlib import Path

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.workspaces.copying import copy_tree
from pytest_agentbench.workspaces.snapshot import Snapshot, digest, take_snapshot
from pytest_agentbench.workspaces.walking import MAX_ENTRIES, MAX_TREE_BYTES, TreeError
from pytest_agentbench.workspaces.workspace import PRIVATE_TMP, Workspace

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def template_digest(template: Path) -> str:
    """SHA-256 of all that the folder holds: paths, contents, permissions and links.

    Raises ConfigError for a template that holds too much, or what is no file, folder or link that can be read.
    """
    try:
        snapshot = take_snapshot(str(template))
    except TreeError as error:
        raise _too_much(template, error) from error
    unread = [names for names, facts in snapshot.facts.items() if facts.kind == "file" and facts.sha256 is None]
    if unread and sum(facts.size or 0 for facts in snapshot.facts.values()) > MAX_TREE_BYTES:
        raise _too_much(template, TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB"))
    if (template / PRIVATE_TMP).exists():
        raise ConfigError(f"{template / PRIVATE_TMP}: this name is the run's private temporary folder's; rename it")
    special = ["/".join(names) for names, facts in snapshot.facts.items() if facts.kind == "other"]
    if bad := [*special, *map("/".join, unread), *snapshot.unseen]:
        raise _not_copied(template, bad[0])
    return digest(snapshot)


def fill(workspace: Workspace, template: Path) -> Snapshot:
    """Copies the folder into a fresh workspace; the facts of what that holds now. Takes its time: for a thread.

    Raises ConfigError as `template_digest` does, SandboxError for want of room.
    """
    try:
        left_out = copy_tree(template, workspace)
        if left_out:
            raise _not_copied(template, left_out[0])
        return take_snapshot(str(workspace.path))
    except TreeError as error:
        raise _too_much(template, error) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise SandboxError(f"no room for a copy of {template}: {error}; set TMPDIR to another folder") from error
        raise ConfigError(f"{template}: this workspace template cannot be copied: {error}") from error


def _too_much(template: Path, error: TreeError) -> ConfigError:
    return ConfigError(
        f"{template}: this workspace template is too large: {error}; expected under {MAX_ENTRIES:,} files and folders "
        f"with at most {MAX_TREE_BYTES // 2**20} MB, as each run gets a copy: leave out what the task does not need"
    )


def _not_copied(template: Path, path: str) -> ConfigError:
    return ConfigError(
        f"{template / path}: found what is no file, folder or link that can be read, in the workspace template "
        f"{template}; remove it from there"
    )
