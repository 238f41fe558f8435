"""Open and remove paths below a folder safely while other processes may change it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pytest_agentbench.errors import AgentbenchError

# The rule of this module: each component of a path is opened by itself, relative to the descriptor of its
# parent, and never through a link. A check applies to the opened file, so another process cannot replace the
# file between check and use.


MAX_FILE_BYTES = 16 * 2**20
"""Maximum bytes of a file that is read or written through a workspace."""

_MAX_PATH = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PathRefusedError(AgentbenchError):
    """Raised for a path that leads, or could lead, out of the workspace or to something other than a regular file."""


def split_path(path: str) -> list[str]:
    """Return the names along a relative path, without `.` and empty ones.

    Raises PathRefusedError for a path that climbs.
    """
    if "\0" in path or len(path) > _MAX_PATH:
        raise PathRefusedError(f"{path[:80]!r}: not a usable path (NUL byte, or over {_MAX_PATH} characters)")
    if path.startswith("/"):
        raise PathRefusedError(f"{path!r}: found an absolute path, expected one relative to the workspace")
    try:
        # A model's JSON may contain lone surrogates, for which `open` would raise UnicodeEncodeError
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise PathRefusedError(f"{path!r}: not a usable path (characters that no file name can hold)") from error
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise PathRefusedError(f"{path!r}: `..` is not allowed, paths start at the workspace and stay in it")
    return names


@contextmanager
def open_folder(root: str, names: Sequence[str], *, create: bool = False, owner: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`. `create`: missing folders are created (mode 0700, for `owner`).

    Raises PathRefusedError for a link in the path, FileNotFoundError and NotADirectoryError as usual.
    """
    # One component at a time, relative to the descriptor above and without following links. If an agent
    # replaces a folder in the meantime, either the original is open or the replacement is refused.
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
    """Return the descriptor of the regular file `name`. `write`: create it if missing, empty it, give it to `owner`.

    Raises PathRefusedError for symbolic links, for files with several hard links unless `linked`, and for FIFOs,
    devices and sockets. Raises IsADirectoryError for folders, FileNotFoundError for a missing file.
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
            os.ftruncate(file, 0)  # only now, because O_TRUNC would empty a hard link's target before the check
            give_ownership(file, owner)
    except BaseException:
        os.close(file)
        raise
    return file


def give_ownership(opened: int, owner: int | None) -> None:
    """Change user and group of an open file or folder to `owner`; None: do nothing."""
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
    with suppress(FileExistsError):  # a concurrent call created it; the open below checks it
        os.mkdir(name, 0o700, dir_fd=here)
    folder = _open_subfolder(here, name, create=False)
    try:
        give_ownership(folder, owner)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _is_link(here: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)


def _check_regular(name: str, status: os.stat_result, *, linked: bool) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular_error(name)
    if status.st_nlink > 1 and not linked:
        raise PathRefusedError(f"{name!r}: a file with several hard links is not opened, copy it instead")


def _link_error(name: str) -> PathRefusedError:
    return PathRefusedError(f"{name!r}: links are not followed, use the file's own path in the workspace")


def _not_regular_error(name: str) -> PathRefusedError:
    return PathRefusedError(f"{name!r}: found a FIFO, socket or device, expected a regular file")


_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_entry(folder: int, name: str) -> None:
    """Remove the file, link or tree `name` of an open folder. Do nothing if it is missing. Raises OSError."""
    try:
        is_gone = _unlink(folder, name)
    except FileNotFoundError:
        return
    if not is_gone:
        _remove_tree(folder, name)


def _remove_tree(parent: int, name: str) -> None:
    """Remove a folder with its content.

    Nested folders are moved to the top before they are emptied, so that no depth needs more than three descriptors.
    """
    with _open_for_owner(parent, name) as root:
        while subfolders := _remove_all_but_folders(root):
            for subfolder in subfolders:
                with _open_for_owner(root, subfolder) as folder:
                    for below in _remove_all_but_folders(folder):
                        with _open_for_owner(folder, below):  # only a writable folder can be moved
                            os.rename(below, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=root)
                os.rmdir(subfolder, dir_fd=root)
    os.rmdir(name, dir_fd=parent)


def _remove_all_but_folders(folder: int) -> list[str]:
    """Remove all but the folders in a folder, and return their names."""
    return [name for name in os.listdir(folder) if not _unlink(folder, name)]


def _unlink(folder: int, name: str) -> bool:
    """Remove a file or link. Return False for a folder, which stays."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


@contextmanager
def _open_for_owner(parent: int, name: str) -> Iterator[int]:
    """Open a folder and give its owner all permissions."""
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
    """Give the owner access to a folder that cannot be opened. `chmod` by name would follow a link."""
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IRWXU)
    finally:
        os.close(folder)
