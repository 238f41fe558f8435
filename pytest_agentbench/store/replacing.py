"""What becomes of what lies where a run or an evaluation is to be written: replaced, kept aside, or refused."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable

from pytest_agentbench.records import Evaluation, RunArtifact
from pytest_agentbench.store.reading import stored_evaluation, stored_run

UNREADABLE = ".unreadable"
"""What the name of a file ends with that could not be read and was in the way."""

_RUN_FILES = ("run_{}.fingerprint_input.json", "run_{}.json")
_EVALUATION_FILES = ("judge_{}.json", "judge_{}.prompt.user.json", "summary_{}.md", "final_result_{}.json")
"""In the order in which they move: what they explain goes last."""

_ASIDE = re.compile(r"\.[0-9a-f]{8}\.json$")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")

Warn = Callable[[str], None]


def aside(repetition: int, fingerprint: str) -> str:
    """What stands for the repetition in the names of files whose place another fingerprint's have taken."""
    return f"{repetition}.{fingerprint[:8]}"


def make_way_for_run(folder: str, artifact: RunArtifact, warn: Warn) -> RunArtifact | None:
    """Clears the place of a run; the run of the same fingerprint that lies there and is to be overwritten, if any.

    One of another fingerprint moves aside, and so does one that succeeded before a provider's failure; such a failure
    is overwritten where a run of its fingerprint lies aside. What cannot be read is kept under another name, and said.
    Raises OSError, and InfrastructureError for what a newer version wrote.
    """
    path = f"{folder}/run_{artifact.repetition}.json"
    try:
        found = stored_run(path)
        key = _usable(found.fingerprint) if found is not None else ""
    except ValueError:
        _keep_unreadable(path, warn)
        return None
    if found is None:
        return None
    if key == artifact.fingerprint and not (artifact.status == "provider_error" and found.status == "success"):
        return found
    if found.status != "provider_error" or not os.path.exists(f"{folder}/run_{aside(artifact.repetition, key)}.json"):
        _move(folder, _RUN_FILES, artifact.repetition, key)
    return None


def make_way_for_evaluation(folder: str, repetition: int, evaluation: Evaluation, warn: Warn) -> None:
    """The same for an evaluation: a verdict moves aside, with what its judges said, for one of another fingerprint
    and for what is no verdict.
    """
    path = f"{folder}/final_result_{repetition}.json"
    try:
        found = stored_evaluation(path)
        if found is None or found.outcome == "error" or found.fingerprint is None:
            return
        key = _usable(found.fingerprint)
    except ValueError:
        _keep_unreadable(path, warn)
        return
    if key != evaluation.fingerprint or evaluation.outcome == "error":
        _move(folder, _EVALUATION_FILES, repetition, key)


def keep_in_use(path: str) -> None:
    """Says of a run or verdict, where it lies aside, that a session has come back to it: then it is no waste."""
    if _ASIDE.search(path):
        with contextlib.suppress(OSError):  # a store that cannot be written to is not pruned either
            os.utime(path)


def _usable(fingerprint: str | None) -> str:
    """A stored fingerprint, which becomes part of a file's name. Raises ValueError for what is none."""
    if fingerprint is None or not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError(f"found fingerprint {fingerprint!r}")
    return fingerprint


def _move(folder: str, names: tuple[str, ...], repetition: int, fingerprint: str) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{folder}/{name.format(repetition)}", f"{folder}/{name.format(aside(repetition, fingerprint))}")


def _keep_unreadable(path: str, warn: Warn) -> None:
    os.replace(path, path + UNREADABLE)
    warn(f"{path}: could not be read, so it counted as missing; it is kept as {os.path.basename(path)}{UNREADABLE}")
