"""The core names no system: nothing outside `packs/` imports from there or says the name of one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import pytest_agentbench

PACKAGE = Path(pytest_agentbench.__file__).parent
CORE = [
    path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "packs" not in path.relative_to(PACKAGE).parts
]
MODULES = [path for path in CORE if path.suffix in (".py", ".pyi")]

NAMES = (
    *("openclaw", "mcp_planner", "mcp.bench", "mcp.tasks?\\b", "poet(?!ry)", "promptfoo", "deepeval"),
    *("research report", r"\bFACT\b", r"\bRACE\b", "reports\\.yaml"),
)
"""What no line of the core may say, however it is written."""

STORED = {
    "identity/fingerprints.py": "sections that fingerprints cover even if a document does not have them",
    "reports/section_defaults.json": "keys that reports have always had",
}
"""Files of data that hold such names all the same, and why."""


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports from, in functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.slow
def test_nothing_outside_packs_imports_from_packs() -> None:
    importing = {
        relative(path) for path in MODULES if any("pytest_agentbench.packs" in name for name in imported(path))
    }
    assert importing == set()


@pytest.mark.slow
def test_nothing_outside_packs_names_a_pack() -> None:
    pattern = re.compile("|".join(f"(?i:{name})" if name.islower() else name for name in NAMES))
    naming = {}
    for path in CORE:
        if path.suffix in (".py", ".pyi", ".json", ".js", ".html", ".css", ".mjs") and relative(path) not in STORED:
            text = re.sub(r"pytest_agentbench\.packs\.\w+", "", path.read_text())  # imports are told above
            if found := sorted(set(pattern.findall(text))):
                naming[relative(path)] = found
    assert naming == {}
