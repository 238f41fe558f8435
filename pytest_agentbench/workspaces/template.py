"""The folder that a run's workspace starts as a copy of; links are copied as links, never followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pytest_agentbench.errors import ConfigError, SandboxError
from pytest_agentbench.workspaces.changes import Snapshot, digest_snapshot, take_snapshot
from pytest_agentbench.workspaces.confined import PathRefusedError, open_file, open_folder
from pytest_agentbench.workspaces.workspace import (
    MAX_ENTRIES,
    MAX_TREE_BYTES,
    PRIVATE_TMP,
    Found,
    Names,
    TreeError,
    Workspace,
    walk_tree,
)

_CHUNK = 2**20


def copy_tree(source: Path, target: Workspace) -> list[str]:
    """Copy all that `source` holds, and return the paths of what was left out: FIFOs, sockets, what cannot be read.

    What is there at the target's paths must be of the same kind; files are replaced. Raises TreeError where the source
    holds too much, PathRefusedError and OSError for what stands in the way, and for want of room.
    """
    left_out: list[str] = []
    folders: list[tuple[Names, os.stat_result]] = []
    room = MAX_TREE_BYTES
    for found in walk_tree(str(source), left_out):
        if found.kind == "folder":
            folders.append((found.names, found.stat))
            with open_folder(str(target.path), found.names, create=True, owner=target.owner):
                continue
        if found.kind == "link":
            _copy_link(found, target)
        elif found.kind != "file" or (opened := _open_found(found)) is None:
            left_out.append(found.path)
        else:
            room -= _copy_file(found, opened, target, room)
    for names, there in reversed(folders):  # what holds others comes after them: it may forbid to write in it
        with open_folder(str(target.path), names) as folder:
            _copy_mode_and_time(folder, there)
    return left_out


def _open_found(found: Found) -> int | None:
    try:
        return open_file(found.folder, found.names[-1], linked=True)
    except (PathRefusedError, OSError):  # another kind by now, or not to be read
        return None


def _copy_file(found: Found, opened: int, target: Workspace, room: int) -> int:
    """Copy a file and return how many bytes it has. Raises TreeError where these are more than there is `room` for."""
    size = 0
    with (
        os.fdopen(opened, "rb", buffering=0) as content,
        open_folder(str(target.path), found.names[:-1], create=True, owner=target.owner) as folder,
        os.fdopen(open_file(folder, found.names[-1], write=True, owner=target.owner), "wb") as copy,
    ):
        if found.stat.st_size > room:  # before a file that is all hole fills the disk
            raise _tree_size_error()
        while chunk := content.read(_CHUNK):
            size += len(chunk)
            if size > room:
                raise _tree_size_error()
            copy.write(chunk)
        copy.flush()
        _copy_mode_and_time(copy.fileno(), found.stat)
    return size


def _tree_size_error() -> TreeError:
    return TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB")


def _copy_link(found: Found, target: Workspace) -> None:
    leads_to = os.readlink(found.names[-1], dir_fd=found.folder)
    with open_folder(str(target.path), found.names[:-1], create=True, owner=target.owner) as folder:
        os.symlink(leads_to, found.names[-1], dir_fd=folder)
        if target.owner is not None:
            os.chown(found.names[-1], target.owner, target.owner, dir_fd=folder, follow_symlinks=False)


def _copy_mode_and_time(opened: int, there: os.stat_result) -> None:
    """Give what is open the permission bits and the time of what it is a copy of."""
    # Without set-user-ID bits, which a copy must not gain from its new owner.
    os.fchmod(opened, stat.S_IMODE(there.st_mode) & 0o777)
    os.utime(opened, ns=(there.st_atime_ns, there.st_mtime_ns))


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def template_digest(template: Path) -> str:
    """Return the SHA-256 of all that the folder holds: paths, contents, permissions and links.

    Raises ConfigError for a template that holds too much, or what is no file, folder or link that can be read.
    """
    try:
        snapshot = take_snapshot(str(template))
    except TreeError as error:
        raise _template_size_error(template, error) from error
    # Files have no hash where they cannot be read, and where those before took all the room: the sum tells which.
    unread = [names for names, facts in snapshot.facts.items() if facts.kind == "file" and facts.sha256 is None]
    if unread and sum(facts.size or 0 for facts in snapshot.facts.values()) > MAX_TREE_BYTES:
        raise _template_size_error(template, TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB"))
    if (template / PRIVATE_TMP).exists():
        raise ConfigError(f"{template / PRIVATE_TMP}: this name is the run's private temporary folder's; rename it")
    special = ["/".join(names) for names, facts in snapshot.facts.items() if facts.kind == "other"]
    if bad := [*special, *map("/".join, unread), *snapshot.unseen]:
        raise _uncopied_error(template, bad[0])
    return digest_snapshot(snapshot)


def fill_workspace(workspace: Workspace, template: Path) -> Snapshot:
    """Copy the folder into a fresh workspace, and return the facts of what that holds now. For a thread.

    Raises ConfigError as `template_digest` does, SandboxError for want of room.
    """
    try:
        left_out = copy_tree(template, workspace)
        if left_out:
            raise _uncopied_error(template, left_out[0])
        return take_snapshot(str(workspace.path))
    except TreeError as error:
        raise _template_size_error(template, error) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise SandboxError(f"no room for a copy of {template}: {error}; set TMPDIR to another folder") from error
        raise ConfigError(f"{template}: this workspace template cannot be copied: {error}") from error


def _template_size_error(template: Path, error: TreeError) -> ConfigError:
    return ConfigError(
        f"{template}: this workspace template is too large: {error}; expected under {MAX_ENTRIES:,} files and folders "
        f"with at most {MAX_TREE_BYTES // 2**20} MB, as each run gets a copy: leave out what the task does not need"
    )


def _uncopied_error(template: Path, path: str) -> ConfigError:
    return ConfigError(
        f"{template / path}: found what is no file, folder or link that can be read, in the workspace template "
        f"{template}; remove it from there"
    )


def changed_meanwhile(template: Path) -> ConfigError:
    """Return what to say of a workspace template that is not what the fingerprints of the session's runs cover."""
    return ConfigError(f"{template}: this workspace template was changed while the session ran; start it again")
