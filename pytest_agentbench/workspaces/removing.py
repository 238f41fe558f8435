"""Removing what an agent may have made: through descriptors, links never followed, however deep it is nested."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_entry(folder: int, name: str) -> None:
    """Remove the file, link or tree `name` of an open folder; nothing where it is missing. Raises OSError."""
    try:
        is_gone = _unlink(folder, name)
    except FileNotFoundError:
        return
    if not is_gone:
        _remove_tree(folder, name)


def _remove_tree(parent: int, name: str) -> None:
    """Folders below are moved up before they are emptied: so no depth needs more than three descriptors."""
    with _opened(parent, name) as root:
        while waiting := _folders_left(root):
            for each in waiting:
                with _opened(root, each) as folder:
                    for below in _folders_left(folder):
                        with _opened(folder, below):  # only what may be written to can be moved
                            os.rename(below, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=root)
                os.rmdir(each, dir_fd=root)
    os.rmdir(name, dir_fd=parent)


def _folders_left(folder: int) -> list[str]:
    """The names of the folders in a folder, of which all else is removed."""
    return [name for name in os.listdir(folder) if not _unlink(folder, name)]


def _unlink(folder: int, name: str) -> bool:
    """Remove what is no folder; whether it was none."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


@contextmanager
def _opened(parent: int, name: str) -> Iterator[int]:
    """A folder, in which its owner may do everything from now on."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _open_up(parent, name)
        folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(folder, stat.S_IRWXU)
        yield folder
    finally:
        os.close(folder)


def _open_up(parent: int, name: str) -> None:
    """Makes a folder readable that even its owner may not open; `chmod` by its name would follow a link."""
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IRWXU)
    finally:
        os.close(folder)
