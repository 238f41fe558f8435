"""The paths that commands are given."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.config.grants import decide_trust
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError

_CONFIGURATIONS = {
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "tool.pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
"""Files in which pytest looks for its configuration, in its order, and the section."""
_PROJECT = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", ".git")


def require_existing(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, absolute.

    :raises ConfigError: one does not exist, or lies where this user may not look.
    """
    found = [path.absolute() for path in paths]
    for path in found:
        try:
            # It raises where a folder above may not be entered.
            is_there = path.exists()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be looked into: {error.strerror}") from error
        if not is_there:
            raise ConfigError(f"{path}: there is no such file or folder")
    return found


def project_folder(path: Path) -> Path:
    """Return the folder up to which a config root is looked for: the project's, else where the command is run.

    Of a path that does not lie below that, its own. So pytest chooses its rootdir where no file names one.
    """
    start = path if path.is_dir() else path.parent
    for folder in (start, *start.parents):
        if any((folder / name).exists() for name in _PROJECT):
            return folder
    here = Path.cwd()
    return here if start.is_relative_to(here) else start


def session_roots(paths: Sequence[Path]) -> SessionRoots:
    """Return whose the config roots are where a command is given these paths: as in a pytest session of the first
    one's project.
    """
    from pytest_agentbench.sources.discovery import has_cases

    project = project_folder(paths[0])
    ini = _read_pytest_ini(project)
    configs = [project / text for text in ini.get("agentbench_configs", [])]
    trust = decide_trust(project, [project / text for text in ini.get("agentbench_trust", [])])
    configured = configs[0].resolve() if configs else None
    return decide_roots(paths, project, configured, trust=trust, here=Path.cwd(), has_cases=has_cases)


def _read_pytest_ini(project: Path) -> dict[str, list[str]]:
    """Return what pytest's configuration of a project says of config roots.

    Raises ConfigError where it cannot be read.
    """
    found: dict[str, list[str]] = {}
    for name, section in _CONFIGURATIONS.items():
        path = project / name
        if not path.is_file():
            continue
        try:
            text = read_file(path, MAX_TEXT).decode()
            given = _read_toml(text) if path.suffix == ".toml" else _read_ini(text, name, section)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
        for key in ("agentbench_configs", "agentbench_trust"):
            value = given.get(key) or []
            found.setdefault(key, value if isinstance(value, list) else shlex.split(value))
        # pytest.ini counts even if it is empty, others only with a section of pytest's.
        if given or name in ("pytest.ini", ".pytest.ini"):
            break  # pytest reads one of them
    return found


def _read_toml(text: str) -> dict[str, Any]:
    import tomllib  # here, as configparser below: a project has one of the two

    tables: Any = tomllib.loads(text)
    # pytest 9 reads `[tool.pytest]` and the older `[tool.pytest.ini_options]`.
    given = {**tables.get("tool", {}).get("pytest", {}), **tables.get("pytest", {})}
    return {**given, **given.pop("ini_options", {})}


def _read_ini(text: str, name: str, section: str) -> dict[str, Any]:
    import configparser

    # As iniconfig reads it: a `%` in another tool's section is no interpolation.
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text, name)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    return dict(parser[section]) if parser.has_section(section) else {}


def enclosing_root(path: Path) -> ConfigRoot:
    """Return the config root of a file, or of what lies in a folder, that alone is given."""
    path = path.absolute()
    return session_roots([path]).around(path)
