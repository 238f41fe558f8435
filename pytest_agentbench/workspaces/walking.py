"""All that a folder holds, looked at through descriptors: no link leads the walk out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.workspaces.confined import PathRefusedError, open_folder
from pytest_agentbench.workspaces.workspace import Kind, kind_of

MAX_ENTRIES = 50_000
"""The most files and folders that a tree may hold."""

MAX_DEPTH = 100
"""How deep its folders may be nested."""

MAX_TREE_BYTES = 512 * 2**20
"""The most bytes of a tree's files that are read."""

Names = tuple[str, ...]
"""The names along the path of something, from the root on."""


class TreeError(AgentbenchError):
    """A folder that holds more, or is nested deeper, than is looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something below the root. `folder` is the descriptor of the folder it lies in, open until the walk goes on.

    For a folder it is its own.
    """

    names: Names
    kind: Kind
    stat: os.stat_result
    folder: int

    @property
    def path(self) -> str:
        """Relative to the root."""
        return "/".join(self.names)


def walk(root: str, unseen: list[str], skip: str | None = None) -> Iterator[Found]:
    """Everything below `root`, sorted within each folder, a folder before what it holds; `skip` is no part of it.

    The paths of folders that cannot be looked into are added to `unseen`, "" for the root. Raises TreeError.
    """
    pending: list[Names] = [()]
    seen = 0
    while pending:
        names = pending.pop()
        if len(names) > MAX_DEPTH:
            raise TreeError(f"its folders are nested deeper than {MAX_DEPTH}")
        try:
            with open_folder(root, names) as folder:
                if names:
                    yield Found(names, "folder", os.fstat(folder), folder)
                with os.scandir(folder) as entries:
                    found = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
                seen += len(found)
                if seen >= MAX_ENTRIES:
                    raise TreeError(f"it holds {MAX_ENTRIES:,} files or more")
                for name in found:
                    if name == skip and not names:
                        continue
                    there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISDIR(there.st_mode):
                        pending.append((*names, name))
                    else:
                        yield Found((*names, name), kind_of(there), there, folder)
        except (PathRefusedError, PermissionError, FileNotFoundError, NotADirectoryError):
            unseen.append("/".join(names))
