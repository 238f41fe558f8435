"""Paths below a folder, opened and removed so that nothing leads out of it, whoever writes there meanwhile."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pytest_agentbench.errors import AgentbenchError

# Opening a path below a folder so that nothing can lead out of it, whoever writes in the folder meanwhile.
#
# Every component is opened by itself, relative to the descriptor of the one before, and never through a link. So a
# check cannot be overtaken: what was looked at is what is open.


MAX_FILE_BYTES = 16 * 2**20
"""The largest file that is read or written through a workspace."""

_MAX_PATH = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PathRefusedError(AgentbenchError):
    """A path that leads, or could lead, out of the workspace, or to something that is no plain file."""


def split_path(path: str) -> list[str]:
    """Return the names along a relative path, without `.` and empty ones.

    Raises PathRefusedError for a path that climbs.
    """
    if "\0" in path or len(path) > _MAX_PATH:
        raise PathRefusedError(f"{path[:80]!r}: not a usable path (NUL byte, or over {_MAX_PATH} characters)")
    if path.startswith("/"):
        raise PathRefusedError(f"{path!r}: found an absolute path, expected one relative to the workspace")
    try:
        # A model's JSON may hold lone surrogates, which `open` would answer with a UnicodeEncodeError.
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise PathRefusedError(f"{path!r}: not a usable path (characters that no file name can hold)") from error
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise PathRefusedError(f"{path!r}: `..` is not allowed, paths start at the workspace and stay in it")
    return names


@contextmanager
def open_folder(root: str, names: Sequence[str], *, create: bool = False, owner: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`; with `create`, missing ones are made (mode 0700, `owner`'s).

    Raises PathRefusedError for a link on the way, FileNotFoundError and NotADirectoryError as usual.
    """
    # One component at a time, each by the descriptor of the one above and without following links: what an agent swaps
    # in meanwhile is either the folder that was opened or refused.
    here = os.open(root, _FOLDER)
    try:
        for name in names:
            below = _open_subfolder(here, name, create=create, owner=owner)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def open_file(folder: int, name: str, *, write: bool = False, owner: int | None = None, linked: bool = False) -> int:
    """Return the descriptor of the regular file `name`; with `write` made where missing, emptied, and `owner`'s.

    Raises PathRefusedError for links (symbolic, or a second hard one unless `linked` allows it), FIFOs, devices and
    sockets, IsADirectoryError for folders, FileNotFoundError for nothing.
    """
    flags = _FILE | (os.O_WRONLY | os.O_CREAT if write else os.O_RDONLY)
    try:
        file = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise _link_error(name) from error
        if error.errno == errno.ENXIO:
            raise _not_regular_error(name) from error
        raise
    try:
        _check_regular(name, os.fstat(file), linked=linked)
        if write:
            os.ftruncate(file, 0)  # only now: O_TRUNC would empty what a hard link leads to before it is looked at
            give_ownership(file, owner)
    except BaseException:
        os.close(file)
        raise
    return file


def give_ownership(opened: int, owner: int | None) -> None:
    """Make what is open `owner`'s, user and group; None leaves it as it is."""
    if owner is not None:
        os.fchown(opened, owner, owner)


def _open_subfolder(here: int, name: str, *, create: bool, owner: int | None = None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(here, name):
            raise _link_error(name) from error
        raise
    with suppress(FileExistsError):  # made by another call meanwhile: the open below decides what it is
        os.mkdir(name, 0o700, dir_fd=here)
    made = _open_subfolder(here, name, create=False)
    try:
        give_ownership(made, owner)
    except BaseException:
        os.close(made)
        raise
    return made


def _is_link(here: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)


def _check_regular(name: str, found: os.stat_result, *, linked: bool) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(found.st_mode):
        raise _not_regular_error(name)
    if found.st_nlink > 1 and not linked:
        raise PathRefusedError(f"{name!r}: a file with several hard links is not opened, copy it instead")


def _link_error(name: str) -> PathRefusedError:
    return PathRefusedError(f"{name!r}: links are not followed, use the file's own path in the workspace")


def _not_regular_error(name: str) -> PathRefusedError:
    return PathRefusedError(f"{name!r}: found a FIFO, socket or device, expected a regular file")


_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_entry(folder: int, name: str) -> None:
    """Remove the file, link or tree `name` of an open folder; nothing where it is missing. Raises OSError."""
    try:
        is_gone = _unlink(folder, name)
    except FileNotFoundError:
        return
    if not is_gone:
        _remove_tree(folder, name)


def _remove_tree(parent: int, name: str) -> None:
    """Remove a folder with all below it.

    Folders in it are moved up before they are emptied, so that no depth needs more than three descriptors.
    """
    with _open_for_owner(parent, name) as root:
        while waiting := _remove_all_but_folders(root):
            for each in waiting:
                with _open_for_owner(root, each) as folder:
                    for below in _remove_all_but_folders(folder):
                        with _open_for_owner(folder, below):  # only what may be written to can be moved
                            os.rename(below, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=root)
                os.rmdir(each, dir_fd=root)
    os.rmdir(name, dir_fd=parent)


def _remove_all_but_folders(folder: int) -> list[str]:
    """Remove all but the folders in a folder, and return their names."""
    return [name for name in os.listdir(folder) if not _unlink(folder, name)]


def _unlink(folder: int, name: str) -> bool:
    """Remove what is no folder, and return whether it was none."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


@contextmanager
def _open_for_owner(parent: int, name: str) -> Iterator[int]:
    """Open a folder, in which its owner may do everything from now on."""
    try:
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except PermissionError:
        _make_accessible(parent, name)
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(folder, stat.S_IRWXU)
        yield folder
    finally:
        os.close(folder)


def _make_accessible(parent: int, name: str) -> None:
    """Make a folder readable that even its owner may not open; `chmod` by its name would follow a link."""
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IRWXU)
    finally:
        os.close(folder)
