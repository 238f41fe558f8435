"""Copy a template into a run's workspace. Links are copied as links, never followed."""

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
    Names,
    TreeEntry,
    TreeError,
    Workspace,
    walk_tree,
)

_CHUNK = 2**20


def copy_tree(source: Path, target: Workspace, *, below: Names = (), into: Names = ()) -> list[str]:
    """Copy the content of `source`. Return the paths that were left out: FIFOs, sockets, unreadable files.

    `below` is the folder of `source` to copy, `into` the folder of the target. Existing entries of the target must have
    the same kind; files are replaced. Raises TreeError if the source is too large, PathRefusedError and OSError for
    conflicts and missing space.
    """
    left_out: list[str] = []
    folders: list[tuple[Names, os.stat_result]] = []
    room = MAX_TREE_BYTES
    with open_folder(str(target.path), into, create=True, owner=target.owner):
        pass
    for entry in walk_tree(str(source), left_out, below=below):
        names = (*into, *entry.names)
        if entry.kind == "folder":
            folders.append((names, entry.stat))
            with open_folder(str(target.path), names, create=True, owner=target.owner):
                continue
        if entry.kind == "link":
            _copy_link(entry, names, target)
        elif entry.kind != "file" or (opened := open_entry(entry)) is None:
            left_out.append(entry.path)
        else:
            room -= _copy_file(entry, opened, names, target, room)
    for names, status in reversed(folders):  # parents last, because their mode may forbid writing
        with open_folder(str(target.path), names) as folder:
            _copy_mode_and_time(folder, status)
    return left_out


def open_entry(entry: TreeEntry) -> int | None:
    """Return a descriptor of a file of a tree, None if it is unreadable or no longer a file."""
    try:
        return open_file(entry.folder, entry.names[-1], linked=True)
    except (PathRefusedError, OSError):  # replaced by another kind, or unreadable
        return None


def _copy_file(entry: TreeEntry, opened: int, names: Names, target: Workspace, room: int) -> int:
    """Copy a file and return its size in bytes. Raises TreeError if it is larger than `room`."""
    size = 0
    with (
        os.fdopen(opened, "rb", buffering=0) as content,
        open_folder(str(target.path), names[:-1], create=True, owner=target.owner) as folder,
        os.fdopen(open_file(folder, names[-1], write=True, owner=target.owner), "wb") as copy,
    ):
        if entry.stat.st_size > room:  # before a sparse file fills the disk
            raise tree_size_error()
        while chunk := content.read(_CHUNK):
            size += len(chunk)
            if size > room:
                raise tree_size_error()
            copy.write(chunk)
        copy.flush()
        _copy_mode_and_time(copy.fileno(), entry.stat)
    return size


def tree_size_error() -> TreeError:
    """Return the error for a folder with more bytes than a workspace may have."""
    return TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB")


def _copy_link(entry: TreeEntry, names: Names, target: Workspace) -> None:
    leads_to = os.readlink(entry.names[-1], dir_fd=entry.folder)
    with open_folder(str(target.path), names[:-1], create=True, owner=target.owner) as folder:
        os.symlink(leads_to, names[-1], dir_fd=folder)
        if target.owner is not None:
            os.chown(names[-1], target.owner, target.owner, dir_fd=folder, follow_symlinks=False)


def _copy_mode_and_time(opened: int, status: os.stat_result) -> None:
    """Copy permission bits and times to an open file or folder."""
    # Without set-user-ID bits, which would apply to the copy's new owner
    os.fchmod(opened, stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(opened, ns=(status.st_atime_ns, status.st_mtime_ns))


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def template_digest(template: Path) -> str:
    """Return the SHA-256 of the folder's content: paths, contents, permissions and links.

    Raises ConfigError if the template is too large, or contains an unreadable or special file.
    """
    try:
        snapshot = take_snapshot(str(template))
    except TreeError as error:
        raise _template_size_error(template, error) from error
    # Files have no hash if they are unreadable, or if earlier files used up the limit. The sum of sizes
    # distinguishes these
    unread = [names for names, facts in snapshot.facts.items() if facts.kind == "file" and facts.sha256 is None]
    if unread and sum(facts.size or 0 for facts in snapshot.facts.values()) > MAX_TREE_BYTES:
        raise _template_size_error(template, TreeError(f"its files hold more than {MAX_TREE_BYTES // 2**20} MB"))
    if (template / PRIVATE_TMP).exists():
        raise ConfigError(f"{template / PRIVATE_TMP}: this name is reserved for the run's temporary folder; rename it")
    special = ["/".join(names) for names, facts in snapshot.facts.items() if facts.kind == "other"]
    if bad := [*special, *map("/".join, unread), *snapshot.unseen]:
        raise _uncopied_error(template, bad[0])
    return digest_snapshot(snapshot)


def fill_workspace(workspace: Workspace, template: Path) -> Snapshot:
    """Copy the folder into a new workspace, and return the facts of its content. For a thread.

    Raises ConfigError as `template_digest` does, SandboxError if there is no space.
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
        f"with at most {MAX_TREE_BYTES // 2**20} MB, as each run gets a copy: leave out unneeded files"
    )


def _uncopied_error(template: Path, path: str) -> ConfigError:
    return ConfigError(
        f"{template / path}: found an entry that is not a readable file, folder or link in the workspace "
        f"template {template}; remove it"
    )


def changed_meanwhile(template: Path) -> ConfigError:
    """Return the error for a workspace template that no longer matches the fingerprints of the session's runs."""
    return ConfigError(f"{template}: this workspace template was changed while the session ran; start it again")
