"""Find a program on this machine, and the folders that its sandbox has to show."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pytest_agentbench.config.agent_file import fill
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.runners.agents.adapter import Program
from pytest_agentbench.sources.discovery import has_cases
from pytest_agentbench.workspaces.sandboxes.base import Mount

_ROOT = re.compile(r"\{root\}[^\s:;,=\"']*")
"""A path below the config root in a template."""


def show_programs(program: Program) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mounts of this machine's folders that a sandbox needs for the program, and the folders of its PATH.

    A program in the workspace needs none. Raises UnavailableError if the program is not installed, or if the sandbox
    does not show a file of its arguments.
    """
    from pytest_agentbench.workspaces.sandboxes.shown import show_program

    name = _fill_root(program.argv[0], program)
    mounts: tuple[Mount, ...] = ()
    path: tuple[str, ...] = ()
    if not _is_of_workspace(name):
        try:
            visible = show_program(name, os.environ.get("PATH"))
        except LookupError as error:
            raise UnavailableError(f"{error}; install it, or name another sandbox") from error
        mounts, path = visible.mounts, visible.path
    _require_visible(program, mounts)
    return mounts, path


def require_program(program: Program) -> None:
    """Raise UnavailableError if a sandbox that uses this machine's programs cannot start it."""
    name = _fill_root(program.argv[0], program)
    if _is_of_workspace(name) or "PATH" in program.env or shutil.which(name) is not None:
        return
    from pytest_agentbench.workspaces.sandboxes.shown import explain_missing

    raise UnavailableError(f"{explain_missing(name, os.environ.get('PATH'))}; install it, or name another sandbox")


def list_root_mounts(program: Program) -> tuple[Mount, ...]:
    """Return a mount for each path of `{root}` in the program's templates: of a file's folder, or of the file alone if
    the folder has cases.

    Raises UnavailableError for a missing file, ConfigError for a folder with cases: the program must not see the
    right answers.
    """
    mounts: dict[str, Mount] = {}
    for field, text in _list_texts(program):
        for found in _ROOT.findall(text):
            path = os.path.normpath(found.replace("{root}", program.root))
            if not os.path.exists(path):
                raise UnavailableError(f"{program.name}: {field}: there is no file {path}")
            if os.path.isdir(path) and _has_cases(path):
                problem = "a folder with cases, whose answers the program must not see; name a file or folder in it"
                raise ConfigError(f"{program.name}: {field}: found {found!r}, which is {problem}")
            folder = path if os.path.isdir(path) else os.path.dirname(path)
            shown = path if _has_cases(folder) else folder
            mounts[shown] = Mount(Path(shown), shown)
    return tuple(mounts.values())


def _require_visible(program: Program, mounts: tuple[Mount, ...]) -> None:
    """Raise UnavailableError for an argument that names a file of this machine outside of the sandbox's folders."""
    from pytest_agentbench.workspaces.sandboxes.bwrap import SYSTEM_FOLDERS

    for number, argument in enumerate(program.argv[1:], start=1):
        if not os.path.isabs(argument) or not os.path.isfile(argument):
            continue
        path = os.path.normpath(argument)
        if path.startswith(SYSTEM_FOLDERS) or any(_is_inside(path, mount.target) for mount in mounts):
            continue
        reason = "the sandbox does not show this file"
        if _is_inside(path, "/tmp"):  # noqa: S108 - a name in a message
            reason = "the sandbox has a /tmp of its own"
        advice = "name it by {root}, or make it a program with a first line #! and name it first"
        raise UnavailableError(f"{program.name}: {_name_argv(program)}[{number}]: found {path}: {reason}; {advice}")


@cache
def _has_cases(folder: str) -> bool:
    # Cached, because every case of a session may name the same program
    return has_cases(Path(folder))


def _list_texts(program: Program) -> Iterator[tuple[str, str]]:
    """Yield the templates of a program, each with its field."""
    later = "resume" if program.adapter is None else "resume_argv"
    for field, argv in ((_name_argv(program), program.argv), (later, program.resume or ())):
        yield from ((f"{field}[{number}]", argument) for number, argument in enumerate(argv))
    contents: Mapping[str, object] = {**program.env, **program.files}
    for name, content in contents.items():
        yield name, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _name_argv(program: Program) -> str:
    return "command" if program.adapter is None else "argv"


def _fill_root(template: str, program: Program) -> str:
    return str(fill(template, {"root": program.root}))


def _is_of_workspace(name: str) -> bool:
    """Return whether a program's name is a template or a relative path, and so a file of the workspace."""
    return "{" in name or (os.sep in name and not os.path.isabs(name))


def _is_inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
