"""Programs of this machine that bubblewrap does not show by itself: where they lie, and what they need to run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.bounded import open_file
from pytest_agentbench.workspaces.sandboxes.base import Mount
from pytest_agentbench.workspaces.sandboxes.bubblewrap import WRITABLE
from pytest_agentbench.workspaces.sandboxes.bwrap import SYSTEM_FOLDERS, SYSTEM_PATH, python_path

_MAX_FILES = 40
_FIRST_LINE_BYTES = 512
_OF_PREFIX = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg")
"""What an installation (of Node, a virtual environment, ...) made of its prefix, which may be somebody's home."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A program as it is called in bubblewrap, what must be mounted for it, and folders that its PATH needs."""

    program: str
    mounts: tuple[Mount, ...] = ()
    path: tuple[str, ...] = ()


def shown_program(command: str, path: str | None, folder: str | None = None) -> Shown:
    """How bubblewrap runs a command: from its own PATH, else from `path`, of this machine; or the file of that name.

    The interpreter of a script is shown too; what lies in `folder` is shown anyway. Raises LookupError where the
    program cannot be had there.
    """
    own = _own_path()
    if os.sep not in command and shutil.which(command, path=os.pathsep.join(own)) is not None:
        return Shown(command)
    places = [place for place in (path or "").split(os.pathsep) if not f"{place}/".startswith(WRITABLE)]
    found = shutil.which(command, path=os.pathsep.join(places))
    if found is None:
        raise LookupError(f"the program {command} is not installed where a sandbox sees it")
    anyway = SYSTEM_FOLDERS if folder is None else (*SYSTEM_FOLDERS, os.path.join(os.path.abspath(folder), ""))
    files = [file for file in _files(found, os.pathsep.join((*own, *places))) if not file.startswith(anyway)]
    hidden = next((file for file in files if file.startswith(WRITABLE)), None)
    if hidden is not None:
        raise LookupError(f"the program {hidden} lies where a sandbox has a folder of its own")
    parts = dict.fromkeys(part for file in files for part in _parts(file))
    folders = dict.fromkeys(os.path.dirname(file) for file in files)
    return Shown(found, tuple(Mount(Path(part), part) for part in parts), (*own, *folders))


def _own_path() -> tuple[str, ...]:
    return (*python_path(*WRITABLE), *SYSTEM_PATH)


def _files(program: str, path: str) -> list[str]:
    """The program, what it leads to as a link, and the interpreters of it, each by all names it goes by."""
    found: dict[str, None] = {}
    waiting = [os.path.abspath(program)]
    while waiting and len(found) < _MAX_FILES:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = None
        if os.path.islink(file):
            waiting.append(os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file))))
        waiting.append(os.path.realpath(file))
        waiting += _interpreter(file, path)
    return list(found)


def _interpreter(file: str, path: str) -> Iterator[str]:
    """What runs a script, by its first line; nothing for what is no script."""
    with open_file(file, limit=None) as script:
        first = script.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [shutil.which(words[0], path=path) or ""] if words else []
    if words and os.path.exists(words[0]):
        yield words[0]


def _parts(file: str) -> list[str]:
    """The file with what it was installed with."""
    before, packages, _ = file.partition("/node_modules/")
    if packages:
        return [before + packages.rstrip("/")]
    prefix = os.path.dirname(os.path.dirname(file))
    if os.path.basename(os.path.dirname(file)) != "bin":
        return [file]
    return [part for name in _OF_PREFIX if os.path.exists(part := os.path.join(prefix, name))]
