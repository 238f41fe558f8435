"""Data files by paths and glob patterns of configuration files, which may not lead out of the config root."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_agentbench.config.base import DATA_SUFFIXES, Scope, resolve_path


def match_files(pattern: str, folder: str) -> list[Path]:
    """Return the files that a path or glob pattern of a descriptor in `folder` names, in the order of their names.

    A pattern matches .json and .jsonl files only, `**` any number of folders. Wildcards match no hidden names and no
    links to folders.
    """
    path = os.path.normpath(os.path.join(folder, os.path.expanduser(pattern)))
    if not glob.has_magic(pattern) or os.path.exists(path):
        if os.path.isfile(path):
            return [Path(path)]
        return []
    start = os.path.normpath(folder)
    *parts, name = os.path.relpath(path, start).split(os.sep)
    if name == "**":
        parts, name = [*parts, name], "*"
    places = [start]
    for part in parts:
        # Not glob.glob: it follows links to folders, so a dataset's pattern could leave the root or never end.
        if part == "**":
            places = _list_all_folders(places)
        else:
            places = [each for place in places for each in _match_folders(place, part)]
    found = {os.path.join(place, each) for place in places for each in _match_names(place, name)}
    return [Path(each) for each in sorted(found) if each.endswith(DATA_SUFFIXES) and os.path.isfile(each)]


def find_data_file_problems(pattern: str, scope: Scope, otherwise: str = "") -> Iterator[str]:
    """Yield the reasons why a path or pattern names no data files inside the root.

    `otherwise` ends the message about files of other kinds.
    """
    try:
        resolve_path(pattern, scope)
        matches = match_files(pattern, scope.folder)
        for match in matches:
            resolve_path(str(match), scope)
    except ValueError as error:
        yield str(error)
        return
    if not matches:
        yield f"found {pattern!r}, which matches no .json or .jsonl file below {scope.folder}"
    elif matches[0].suffix not in DATA_SUFFIXES:
        yield f"found {pattern!r}, expected a .json or .jsonl file{otherwise}"


def _list_all_folders(places: Iterable[str]) -> list[str]:
    """Return the folders and all below them, each once."""
    seen = dict.fromkeys(places)
    waiting = list(seen)
    while waiting:
        new = [each for each in _match_folders(waiting.pop(), "*") if each not in seen]
        seen.update(dict.fromkeys(new))
        waiting += new
    return list(seen)


def _match_folders(place: str, part: str) -> Iterator[str]:
    """Yield the folders in a folder that match one part of a pattern. A link matches only its full name."""
    if not glob.has_magic(part):
        path = os.path.normpath(os.path.join(place, part))
        if os.path.isdir(path):
            yield path
        return
    for name in _match_names(place, part):
        path = os.path.join(place, name)
        if os.path.isdir(path) and not os.path.islink(path):
            yield path


def _match_names(place: str, part: str) -> list[str]:
    """Return the names in a folder that one part of a pattern matches; none in a folder that cannot be read."""
    try:
        names = fnmatch.filter(os.listdir(place), part)
    except OSError:
        return []
    if part.startswith("."):
        return names
    return [name for name in names if not name.startswith(".")]
