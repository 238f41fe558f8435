"""`agentbench store why RUN_A RUN_B`: what differs between two runs, and so why one was not reused for the other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.bounded import read_file
from pytest_agentbench.cli.printing import printable

if TYPE_CHECKING:
    from pytest_agentbench.records import RunArtifact

DESCRIPTION = """Compare everything that two runs' fingerprints cover, and their run profiles. A run is named by its
path, or by at least 4 digits of its run_id or of its fingerprint, as report.json has them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Beside `--output`."""
    parser.add_argument("a", metavar="RUN_A", help="a stored run")
    parser.add_argument("b", metavar="RUN_B", help="another one")


def run(args: argparse.Namespace) -> int:
    """Prints a line or a diff for each field that differs."""
    from pytest_agentbench.cli.differences import differences, shown
    from pytest_agentbench.cli.finding import find_stored_run
    from pytest_agentbench.store import Contents

    contents = Contents(args.output)
    (path_a, a), (path_b, b) = (find_stored_run(contents, name) for name in (args.a, args.b))
    for letter, path, artifact in (("A", path_a, a), ("B", path_b, b)):
        began = artifact.started_at.isoformat(" ", "seconds")
        print(f"{letter}  {printable(str(path))}")
        print(f"   fingerprint {(artifact.fingerprint or 'none')[:12]}, {artifact.status}, {began}")
    print()
    found = list(differences(_covered(path_a), _covered(path_b)))
    for difference in found:
        for line in shown(difference):
            print(line)
    for line in _conclusion(a, b, bool(found)):
        print(line)
    return 0


def _conclusion(a: RunArtifact, b: RunArtifact, found: bool) -> Iterator[str]:
    if found:
        return
    if a.run_id == b.run_id:
        yield "A and B are one run."
    elif a.fingerprint == b.fingerprint:
        yield "The same input: B is another draw of it."
        yield from (
            f"{name} ended {run.status}: such a run is made again."
            for name, run in (("A", a), ("B", b))
            if run.status != "success"
        )
    else:
        yield "What is stored of the inputs is equal: what differs is a secret, which is not stored."


def _covered(run: Path) -> dict[str, Any]:
    """What a run's fingerprint covers, with its run profile's settings: both decide whether it is found."""
    from pytest_agentbench.store import PROFILE_FILE

    covered: dict[str, Any] = _document(run.with_name(f"{run.name.removesuffix('.json')}.fingerprint_input.json"))
    profile = run.absolute().parent.parent.parent / PROFILE_FILE
    return covered | ({"run_profile": _document(profile).get("input")} if profile.is_file() else {})


def _document(path: Path) -> dict[str, Any]:
    from pytest_agentbench.errors import InfrastructureError

    try:
        found = json.loads(read_file(path))
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InfrastructureError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InfrastructureError(f"{path}: found {type(found).__name__}, expected an object")
    return found
