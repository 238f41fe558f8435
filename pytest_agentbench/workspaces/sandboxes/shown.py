"""Programs of this machine in sandboxes that mount them: where they are, and the mounts of their installations."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.bounded.files import open_file
from pytest_agentbench.workspaces.sandboxes.base import Mount
from pytest_agentbench.workspaces.sandboxes.bwrap import SYSTEM_FOLDERS, SYSTEM_PATH, python_path
from pytest_agentbench.workspaces.workspace import WORKSPACE

WRITABLE = ("/tmp/", f"{WORKSPACE}/")  # noqa: S108 - paths inside the sandbox
"""Folders that belong to the sandbox. They hide this machine's folders of the same names."""

_MAX_FILES = 40
_FIRST_LINE_BYTES = 512
_OF_PREFIX = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg")
"""Parts of an installation's prefix (of Node, a virtual environment, ...). The prefix itself may be somebody's home."""


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """A program's name in the sandbox, the mounts it needs, and further folders for its PATH."""

    program: str
    mounts: tuple[Mount, ...] = ()
    path: tuple[str, ...] = ()


def show_program(command: str, path: str | None, folder: str | None = None) -> ShownProgram:
    """Return how a sandbox runs a command: found in its own PATH, else in `path` of this machine, or given as a file.

    The mounts show the program and the interpreter of a script with their installations, those below `/tmp` too. Files
    in `folder` need no mount. Raises LookupError if the program is not installed, or is below the workspace's path.
    """
    own = (*python_path(*WRITABLE), *SYSTEM_PATH)
    if os.sep not in command and shutil.which(command, path=os.pathsep.join(own)) is not None:
        return ShownProgram(command)
    hidden = f"{WORKSPACE}/"
    places = [place for place in (path or "").split(os.pathsep) if not f"{place}/".startswith(hidden)]
    program = shutil.which(command, path=os.pathsep.join(places))
    if program is None:
        raise LookupError(explain_missing(command, os.pathsep.join(places)))
    anyway = SYSTEM_FOLDERS if folder is None else (*SYSTEM_FOLDERS, os.path.join(os.path.abspath(folder), ""))
    files = [file for file in _program_files(program, os.pathsep.join((*own, *places))) if not file.startswith(anyway)]
    if refused := [file for file in files if file.startswith(hidden)]:
        raise LookupError(f"the program {refused[0]} is below {WORKSPACE}, which is the run's workspace in the sandbox")
    parts = dict.fromkeys(part for file in files for part in _installed_folder(file))
    folders = dict.fromkeys(os.path.dirname(file) for file in files)
    return ShownProgram(program, tuple(Mount(Path(part), part) for part in parts), (*own, *folders))


def explain_missing(command: str, path: str | None) -> str:
    """Return why a command cannot be found in `path`, or is no program."""
    if os.sep not in command:
        places = [os.path.join(folder, command) for folder in (path or "").split(os.pathsep) if folder]
    else:
        places = [command]
    file = next((place for place in places if os.path.isfile(place)), None)
    if file is not None:
        return f"the program {file} is not executable (chmod +x {file})"
    if os.sep in command:
        return f"there is no program {command}"
    return f"the program {command} is not installed in a folder that sandboxes see"


def _program_files(program: str, path: str) -> list[str]:
    """Return the program, the targets of its links, and the interpreters of scripts, each by all its names."""
    # All names, because a virtual environment is found by the name it was called by, its Python by the link's target
    files: dict[str, None] = {}
    waiting = [os.path.abspath(program)]
    while waiting and len(files) < _MAX_FILES:
        file = waiting.pop()
        if file in files:
            continue
        files[file] = None
        if os.path.islink(file):
            waiting.append(os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file))))
        waiting.append(os.path.realpath(file))
        waiting += _read_interpreter(file, path)
    return list(files)


def _read_interpreter(file: str, path: str) -> Iterator[str]:
    """Yield the interpreter of a script by its first line, if it has one."""
    with open_file(file, limit=None) as script:
        first = script.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [shutil.which(words[0], path=path) or ""] if words else []
    if words and os.path.exists(words[0]):
        yield words[0]


def _installed_folder(file: str) -> list[str]:
    """Return the file together with the rest of its installation."""
    before, packages, _ = file.partition("/node_modules/")
    if packages:
        return [before + packages.rstrip("/")]
    prefix = os.path.dirname(os.path.dirname(file))
    if os.path.basename(os.path.dirname(file)) != "bin":
        return [file]
    return [part for name in _OF_PREFIX if os.path.exists(part := os.path.join(prefix, name))]
