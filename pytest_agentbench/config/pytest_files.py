"""Read the options of this plugin from the files in which pytest looks for its configuration."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.errors import ConfigError

_SECTIONS = {
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "tool.pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
"""Files in which pytest looks for its configuration, in its order, and the section."""
PYTEST_FILES = tuple(_SECTIONS)
PROFILE = "agentbench_profile"
_OPTIONS = ("agentbench_configs", "agentbench_trust", PROFILE)


def read_pytest_options(folder: str) -> dict[str, list[str]]:
    """Return the options about configuration roots, and the profile, that pytest's configuration in a folder sets.

    Raises ConfigError if it cannot be read.
    """
    options: dict[str, list[str]] = {}
    for name in PYTEST_FILES:
        path = Path(folder, name)
        try:
            status = path.stat()
        except OSError:
            continue
        values = _read_file(path, status.st_mtime_ns, status.st_size)
        for option in _OPTIONS:
            value = values.get(option) or []
            options.setdefault(option, value if isinstance(value, list) else shlex.split(value))
        # pytest.ini counts even if it is empty, others only with a section of pytest's.
        if values or name in ("pytest.ini", ".pytest.ini"):
            break  # pytest reads one of them
    return options


@lru_cache(maxsize=1_000)
def _read_file(path: Path, _changed: int, _size: int) -> dict[str, Any]:
    try:
        text = read_file(path, MAX_TEXT).decode()
        section = _SECTIONS[path.name]
        if not any(option in text for option in _OPTIONS):  # nearly all: parsers would cost every session an import
            if f"[{section}" in text:
                return {"section": True}
            return {}
        if path.suffix == ".toml":
            return _read_toml(text)
        return _read_ini(text, path.name, section)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


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
    if parser.has_section(section):
        return dict(parser[section])
    return {}
