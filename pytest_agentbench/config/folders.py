"""Walks over folders of others: never through links, never deeper than a person would nest folders."""

from __future__ import annotations

import os
from collections.abc import Iterator

MAX_DEPTH = 100
"""Maximum number of folders inside of one another. pytest takes 15 s for 400, and each walk here calls itself."""
RECORDED_FOLDERS = frozenset({"cassettes", "outputs"})
"""Folders of recorded files, which hold no cases."""
SKIPPED_FOLDERS = RECORDED_FOLDERS | {"__pycache__", "node_modules", "venv", "build", "dist", "workspace"}
"""Folders in which neither cases nor configuration are looked for."""


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is the folder's or that of something below it; both are absolute and spelled alike."""
    return (path + os.sep).startswith(folder.rstrip(os.sep) + os.sep)


def visited_folders(folders: list[str]) -> list[str]:
    """Return the folders that may hold configuration, sorted: none that is hidden, built, recorded or a workspace."""
    return sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)


def walk_folders(top: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield like `os.walk`, at most `MAX_DEPTH` folders deep. `find_cases` reports deeper folders."""
    levels = {os.fspath(top): 0}
    for place, folders, files in os.walk(top):
        level = levels.pop(place)
        yield place, folders, files
        if level >= MAX_DEPTH:
            folders.clear()
        levels |= {os.path.join(place, name): level + 1 for name in folders}


def leads_around(link: str | os.PathLike[str]) -> bool:
    """Return whether a link leads to a folder around it: two links to `..` in one folder are 2^n paths of n links."""
    target, folder = os.path.realpath(link), os.path.dirname(os.path.abspath(link))
    while not is_inside(os.path.realpath(folder), target):
        if folder == (folder := os.path.dirname(folder)):
            return False
    return True


def describe_depth(folder: str | os.PathLike[str]) -> str:
    """Return the message for a folder that is nested too deep."""
    return f"{os.fspath(folder)}: is more than {MAX_DEPTH} folders deep, expected fewer; move it up, or remove it"
