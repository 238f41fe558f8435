"""Stored runs by what people call them: a path, a run id, the beginning of a fingerprint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.bounded import read_file
from pytest_agentbench.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from pytest_agentbench.records import RunArtifact
    from pytest_agentbench.store import Contents

_FEWEST_DIGITS = 4
_DIGITS = re.compile(rf"[0-9a-f]{{{_FEWEST_DIGITS},64}}")
_NAMED = 5


def find_stored_run(contents: Contents, name: str) -> tuple[Path, RunArtifact]:
    """The run of this name with its path. Raises ConfigError where there is none or there are several.

    A path is relative to the current folder or to the output folder; that of a fingerprint_input.json names its run.
    """
    from pytest_agentbench.store import load_run

    for path in (Path(name), contents.output / name):
        run = path.parent / path.name.replace(".fingerprint_input.json", ".json")
        if run.is_file():
            return run, load_run(run)
    if not _DIGITS.fullmatch(name):
        raise ConfigError(
            f"found {name!r}, expected the path of a stored run, or {_FEWEST_DIGITS} or more digits of its run_id or "
            "fingerprint"
        )
    found = list(islice(_beginning(contents, name), _NAMED + 1))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"{contents.output}: found no run whose run_id or fingerprint begins with {name!r}")
    paths = [f"  {path}" for path, _ in found[:_NAMED]] + ["  ..."] * (len(found) > _NAMED)
    raise ConfigError("\n".join([f"found several runs that begin with {name!r}, expected one; give its path:", *paths]))


def _beginning(contents: Contents, digits: str) -> Iterator[tuple[Path, RunArtifact]]:
    """The runs whose run_id or fingerprint begins so. What cannot be read has neither."""
    from pytest_agentbench.store import load_run

    needles = [f'"{field}":"{digits}'.encode() for field in ("run_id", "fingerprint")]
    for folder in contents.runs():
        for name, (kind, _, _) in folder.files.items():
            path = contents.output / folder.path / name
            if kind != "run":
                continue
            try:
                content = read_file(path)
                if any(needle in content for needle in needles):  # most are not parsed
                    run = load_run(path)
                    if run.run_id.startswith(digits) or (run.fingerprint or "").startswith(digits):
                        yield path, run
            except (OSError, InfrastructureError):
                continue
