"""Case files, and rows of datasets, that could not be read: what is wrong, and on which line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.reports.text import sendable

_LONGEST = 1_000
_PROBLEM = re.compile(r"(?:E +)?(?:[\w.]+Error: )?(?P<file>\S.*?):(?P<line>[1-9][0-9]*):[0-9]+: (?P<message>.+)")
"""A line of a ConfigError's text; with `--full-trace` pytest puts something before it."""


def collection_problems(nodeid: str, text: str, root: Path) -> list[dict[str, Any]]:
    """The problems that the text of a collector's error names, as entries of report.json's `session.uncollected`.

    Files are named from `root` (pytest's root directory). A text that names no line is one problem of the collector's
    own file; of a traceback that is its last line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [match for line in lines if (match := _PROBLEM.fullmatch(line))]
    if not found:
        said = lines[-1] if lines else "cannot be collected"
        return [{"file": nodeid.partition("::")[0], "line": None, "message": sendable(said, _LONGEST)}]
    return [
        {"file": _named(each["file"], root), "line": int(each["line"]), "message": sendable(each["message"], _LONGEST)}
        for each in found
    ]


def by_file(problems: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The problems of each file, in the order of the files' first ones."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for problem in problems:
        found.setdefault(problem["file"], []).append(problem)
    return found


def _named(file: str, root: Path) -> str:
    return Path(os.path.relpath(root / file, root)).as_posix()
