"""Stored runs and evaluations, read back; those of older versions are brought up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records import Evaluation, Record, RunArtifact

R = TypeVar("R", bound=Record)

VERSION = 2
"""The `schema_version` that this package writes, of runs and of evaluations."""

_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda document: document,  # 2 adds Evaluation.run_id, RunArtifact.workspace and .cassette, all optional
}
"""From each older version to the next: what a document of it becomes, but for its `schema_version`."""


def load_run(path: Path) -> RunArtifact:
    """The run stored at `path`. Raises InfrastructureError for a file that is missing, broken or of a newer version."""
    return _load(path, RunArtifact)


def load_evaluation(path: Path) -> Evaluation:
    """The evaluation in the `final_result_<n>.json` at `path`. Raises InfrastructureError like `load_run`."""
    return _load(path, Evaluation)


def find_run(path: str, fingerprint: str) -> RunArtifact | None:
    """The run of this fingerprint at `path`; None where no readable one lies there."""
    return _find(path, RunArtifact, fingerprint)


def find_evaluation(path: str, fingerprint: str) -> Evaluation | None:
    """The evaluation of this fingerprint at `path`; None where no readable one lies there."""
    return _find(path, Evaluation, fingerprint)


def _find(path: str, kind: type[R], fingerprint: str) -> R | None:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    if f'"fingerprint":"{fingerprint}"'.encode() not in content:  # most that are not it, without parsing them
        return None
    try:
        return _read(content, kind)
    except ValidationError:
        return None


def _load(path: Path, kind: type[R]) -> R:
    try:
        return _read(path.read_bytes(), kind)
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()[:3])
        raise InfrastructureError(
            f"{path}: is no {kind.__name__} of schema_version {VERSION}: {problems}. "
            "Delete the file to run the case again, or read it with the version that wrote it"
        ) from error


def _read(content: bytes, kind: type[R]) -> R:
    """The record of a document. Raises ValidationError."""
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        older = _migrated(content)
        if older is None:
            raise
    return kind.model_validate_json(json.dumps(older))


def _migrated(content: bytes) -> dict[str, Any] | None:
    """A document of an older version as this version has it; None for anything else."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("schema_version") not in _MIGRATIONS:
        return None
    while (version := document["schema_version"]) in _MIGRATIONS:
        document = {**_MIGRATIONS[version](document), "schema_version": version + 1}
    return document
