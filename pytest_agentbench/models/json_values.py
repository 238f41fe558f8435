"""Values in JSON of any shape: the value if it has the expected type, else an empty one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_object(value: object) -> Mapping[str, Any]:
    """Return a value that is an object, {} for anything else."""
    if isinstance(value, Mapping):
        return value
    return {}


def as_list(value: object) -> list[Any]:
    """Return a value that is a list, [] for anything else."""
    if isinstance(value, list):
        return value
    return []
