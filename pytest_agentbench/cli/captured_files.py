"""Which files of a live workspace become an agent's, and their copies."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_agentbench.store import Redactor
    from pytest_agentbench.workspaces import Entry, Workspace

MAX_FILES = 1_000
MAX_BYTES = 64 * 2**20
"""The most that one agent's workspace may hold: each of its runs begins with a copy."""

_FOLDERS = {
    **dict.fromkeys((".git", ".hg", ".svn", ".jj"), "version control"),
    **dict.fromkeys(("node_modules", ".venv", "venv"), "installed packages"),
    **dict.fromkeys(("__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache"), "a cache"),
    ".openclaw": "OpenClaw's state",
}
_AT_THE_TOP = dict.fromkeys(("sessions", "state", "credentials"), "OpenClaw's state")
_KEY_FILES = (".env", ".env.*", ".npmrc", ".netrc", ".pypirc", "*.pem", "*.key", "id_*", "auth-profiles.json")
"""Names of files that hold keys. Other files are searched for some."""
_KEY_FILES_OF_NONE = ("*.example", "*.sample", "*.template", "*.pub", "id_*.*")
_MEMORY = "memory"


@dataclass
class CapturedFiles:
    """What was copied, and what was not: (path, why)."""

    count: int = 0
    size: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    with_keys: list[str] = field(default_factory=list)
    """Paths of files that hold a key, and were not copied."""


def capture_files(source: Workspace, target: Path, others: frozenset[str], redactor: Redactor) -> CapturedFiles:
    """Copies the regular files of `source` that belong to the agent into `target`, without those that hold a key.

    `others` are the ids of other agents. Raises ConfigError for more files than an agent's workspace may hold and for a
    workspace that cannot be looked into, OSError for a target that takes no more.
    """
    from pytest_agentbench.workspaces import PathRefusedError

    captured = CapturedFiles()
    for path in _wanted(source, others, captured):
        try:
            content, is_program = _read(source, path)
        except PathRefusedError as error:
            captured.left_out.append((path, str(error).partition(": ")[2] or str(error)))
            continue
        except OSError as error:
            captured.left_out.append((path, f"cannot be read: {error.strerror}"))
            continue
        if _holds_key(f"{path}\n", redactor) or _holds_key(content.decode("utf-8", "surrogateescape"), redactor):
            captured.with_keys.append(redactor.text(path))
            continue
        captured.count += 1
        captured.size += len(content)
        _check_limits(source, captured)
        _write(target / path, content, is_program)
    return captured


def _wanted(source: Workspace, others: frozenset[str], captured: CapturedFiles) -> Iterator[str]:
    """The paths of files, sorted within each folder; notes what is left out by its name or kind."""
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.workspaces import PathRefusedError

    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = source.entries(folder)
        except (PathRefusedError, OSError) as error:
            told = f"cannot be looked into: {getattr(error, 'strerror', error)}"
            if not folder:
                raise ConfigError(f"{source.path}: {told}; call this as the user that OpenClaw runs as") from error
            captured.left_out.append((folder, told))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if (reason := _unwanted(path, entry, others)) is not None:
                captured.left_out.append((path, reason))
            elif entry.kind == "folder":
                pending.append(path)
            else:
                yield path


def _unwanted(path: str, entry: Entry, others: frozenset[str]) -> str | None:
    """Why it is left out whatever it holds."""
    parent, _, name = path.rpartition("/")
    if not path.isprintable():
        return "its name is no plain text"
    if parent == _MEMORY and name.split(".")[0] in others:
        return "the memory of another agent"
    if entry.kind == "folder":
        return _FOLDERS.get(name) or (None if parent else _AT_THE_TOP.get(name))
    if entry.kind != "file":
        return "a link" if entry.kind == "link" else "no regular file"
    if _is_any(name, _KEY_FILES) and not _is_any(name, _KEY_FILES_OF_NONE):
        return "files of that name hold keys"
    return "not the agent's" if name == ".DS_Store" or name.endswith(".pyc") else None


def _is_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _read(source: Workspace, path: str) -> tuple[bytes, bool]:
    """What the file holds, and whether its owner may execute it. Raises PathRefusedError for one that is too large."""
    from pytest_agentbench.workspaces import MAX_FILE_BYTES, PathRefusedError

    with source.open_read(path) as file:
        content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{path!r}: larger than {MAX_FILE_BYTES // 2**20} MB")
        return content, bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)


def _holds_key(text: str, redactor: Redactor) -> bool:
    return redactor.text(text) != text


def _check_limits(source: Workspace, captured: CapturedFiles) -> None:
    from pytest_agentbench.errors import ConfigError

    if captured.count > MAX_FILES or captured.size > MAX_BYTES:
        found = f"{MAX_FILES:,} files" if captured.count > MAX_FILES else f"{MAX_BYTES // 2**20} MB"
        raise ConfigError(
            f"{source.path}: found more than {found}, the most that an agent's workspace may hold, as each run begins "
            "with a copy; capture a copy of the workspace without what the agent does not need"
        )


def _write(path: Path, content: bytes, is_program: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if is_program:
        path.chmod(0o755)
