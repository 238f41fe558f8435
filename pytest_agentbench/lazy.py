"""What is imported at first use: a session without a case pays for none of it, and extras may not be installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) for names that live in other modules: `{name: module}`."""

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), name)

    return find


def missing(module: str, extra: str) -> str | None:
    """What to do where the module of an extra is not installed; None where it is."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"needs the module {module}; install it with: pip install 'pytest-agentbench[{extra}]'"
