"""Where a check's path lies: in the workspace, where agents write, else in the case folder.

A relative path is looked up in both, `/tmp/...` only in the run's private temporary folder. No path leads out of them.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.bounded import FileRefusedError, read_file
from pytest_agentbench.checks.base import CheckContext, Unmet
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.workspaces import MAX_FILE_BYTES, Kind, PathRefusedError


@dataclass(frozen=True, slots=True)
class Place:
    """Something that exists: `name` is the place for messages, `file` is set where it lies in the case folder."""

    name: str
    kind: Kind
    file: Path | None = None


def find(context: CheckContext, path: str) -> Place | None:
    """What lies at the path. Raises ConfigError for a path that no check may look at, Unmet where the agent bars it."""
    absolute = path.startswith("/")
    if ".." in path.split("/") or "\0" in path or (absolute and not path.startswith("/tmp/")):  # noqa: S108
        raise ConfigError(
            f"path: found {path!r}, expected one below the workspace without `..`, or below its private /tmp"
        )
    if context.workspace is not None:
        try:
            kind = context.workspace.kind(path)
        except PathRefusedError as refused:
            raise Unmet(f"{path} in the workspace: {refused}") from refused
        except PermissionError as error:
            raise Unmet(f"{path} in the workspace cannot be looked at: {error.strerror}") from error
        if kind is not None:
            return Place("the workspace", kind)
    return None if absolute else _find_beside(context.case.path.parent, path)


def read_text(context: CheckContext, path: str) -> tuple[str, str]:
    """The file's text, and the file and its place as messages name it.

    Raises Unmet where there is no such file, or the agent made it unreadable, ValueError where it is not UTF-8 or too
    large.
    """
    place = find(context, path)
    if place is None:
        raise Unmet(missing(context, path))
    name = f"{path} in {place.name}"
    if place.kind != "file":
        raise Unmet(f"{name} is a {place.kind}, no regular file")
    try:
        if place.file is not None:
            return _read_beside(place.file), name
        assert context.workspace is not None
        return context.workspace.read_text(path), name
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}") from error
    except PathRefusedError as refused:
        raise Unmet(f"{name}: {refused}") from refused
    except PermissionError as error:
        if place.file is not None:
            raise
        raise Unmet(f"{name} cannot be read: {error.strerror}") from error


def missing(context: CheckContext, path: str) -> str:
    """The sentence for a path where nothing lies."""
    places = ["the workspace"] if context.workspace is not None else []
    if not path.startswith("/"):
        places.append("the case folder")
    made = "" if context.workspace is not None else " (the run made no workspace)"
    return f"{path} does not exist" + (f" in {' or in '.join(places)}" if places else "") + made


def _find_beside(folder: Path, path: str) -> Place | None:
    top = folder.resolve()
    target = (top / path).resolve()
    if not target.is_relative_to(top):
        raise ConfigError(f"path: {path!r} leads out of the case folder, to {target}")
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    kind: Kind = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
    return Place("the case folder", kind, target)


def _read_beside(file: Path) -> str:
    try:
        return read_file(file, MAX_FILE_BYTES).decode()
    except FileRefusedError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
