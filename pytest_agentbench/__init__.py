"""pytest-agentbench: agent benchmarks are tests. What users import is listed in `__init__.pyi`, loaded at first use."""

from __future__ import annotations

TYPE_CHECKING = False  # as a constant: to import typing is a quarter of what `agentbench --help` takes
if TYPE_CHECKING:
    from typing import Any

_names: dict[str, str] = {}


def _homes() -> dict[str, str]:
    """Return the module of each public name, read from the stub beside this file: names are stated only there."""
    if not _names:
        import re

        # Not by pathlib, which `agentbench --help` would import because of a plugin's pack
        with open(f"{__file__.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
            for found in re.finditer(r"^from (\S+) import (\w+) as \2$", stub.read(), re.MULTILINE):
                _names[found[2]] = found[1]
    return _names


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_homes())
    if (home := _homes().get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted(_homes())
