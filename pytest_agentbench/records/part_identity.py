"""The default identity of a case's part: its fields, and the contents of the files that they name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pytest_agentbench.bounded.digests import digest_path
from pytest_agentbench.bounded.folders import lies_below
from pytest_agentbench.errors import ConfigError


def describe_part(part: BaseModel, folder: Path) -> dict[str, Any]:
    """Return the part's fields, with the digest of each file and folder that a path names.

    A text counts as a path if it names a file in `folder`. Raises ConfigError for a file that cannot be read.
    """
    return {name: _describe(value, folder) for name, value in part.model_dump().items()}


def _describe(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {key: _describe(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(item, folder) for item in value]
    if isinstance(value, Path):
        path = folder / value
        # Relative, so that stored runs are found in another clone
        return _digest(path, os.path.relpath(path, folder)) if os.path.exists(path) else str(value)
    if isinstance(value, str) and _names_file(value, folder):
        return _digest(folder / value, value)
    return value


def _names_file(text: str, folder: Path) -> bool:
    try:
        return bool(text) and "\n" not in text and os.path.isfile(folder / text) and lies_below(str(folder), text)
    except ValueError:  # a null byte
        return False


def _digest(path: Path, name: str) -> dict[str, str]:
    try:
        return {"path": name, "sha256": digest_path(path)}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
