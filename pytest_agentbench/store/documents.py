"""Stored runs and evaluations as documents: signed, read back, and brought up to date from older versions."""

from __future__ import annotations

import errno
import hmac
import json
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact

# Signatures of stored records (HMAC-SHA256), for stores that others can write: who lacks the key can forge none.
#
# A signature is the last member of a record's JSON object, and is of all that stands before it and of the record's
# kind. A run names the files that it left by their hashes, so these are covered too.


Kind = Literal["run", "evaluation", "vote"]

_HEAD, _END = b',"signature":"', b'"}'
_LENGTH = len(_HEAD) + 2 * sha256().digest_size + len(_END)
_PURPOSE = b"agentbench store 1 "


class Signer:
    """Signs records with a key, and counts those that are not taken for want of a signature of it."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.refused: Counter[Kind] = Counter()

    def sign(self, kind: Kind, record: bytes) -> bytes:
        """Return the JSON object of a record with its signature."""
        return record[:-1] + _HEAD + self._signature(kind, record) + _END

    def accepts(self, kind: Kind, content: bytes) -> bool:
        """Return whether a stored record is signed with the key; one that is not is counted."""
        record = strip_signature(content)
        # `compare_digest` takes the same time wherever two signatures begin to differ: a forger learns nothing from it.
        if record is not content and hmac.compare_digest(
            content[-_LENGTH:][len(_HEAD) : -len(_END)], self._signature(kind, record)
        ):
            return True
        self.refused[kind] += 1
        return False

    def describe_refused(self) -> str | None:
        """Return how many records were not taken, None where all were."""
        if not self.refused:
            return None
        counts = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in self.refused.items())
        return f"{counts} of the store had no signature of --agentbench-store-key's key and were not taken"

    def _signature(self, kind: Kind, record: bytes) -> bytes:
        return hmac.new(self._key, _PURPOSE + kind.encode() + b" " + record, sha256).hexdigest().encode()


def strip_signature(content: bytes) -> bytes:
    """Return a stored document without its signature; the very same object where it has none."""
    if content[-_LENGTH:].startswith(_HEAD) and content.endswith(_END):
        return content[:-_LENGTH] + b"}"
    return content


R = TypeVar("R", RunArtifact, Evaluation)

VERSION = 2
"""The `schema_version` that this package writes, of runs and of evaluations."""

_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda document: document,  # 2 adds optional fields: Evaluation.run_id, RunArtifact.workspace, .changes ...
}
"""From each older version to the next: what a document of it becomes, but for its `schema_version`."""

_OUR_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What keeps this process from reading a file that may be whole."""


def load_run(path: Path) -> RunArtifact:
    """Return the run stored at `path`.

    Raises InfrastructureError for a file that is missing, broken or of a newer version.
    """
    return _load(path, RunArtifact)


def load_evaluation(path: Path) -> Evaluation:
    """Return the evaluation in the `final_result_<n>.json` at `path`. Raises InfrastructureError like `load_run`."""
    return _load(path, Evaluation)


def find_run(path: str, fingerprint: str, signer: Signer | None = None) -> RunArtifact | None:
    """Return the run of this fingerprint at `path`; None where no readable one lies there, or none that the signer
    accepts.
    """
    return _find(path, RunArtifact, fingerprint, "run", signer)


def find_evaluation(path: str, fingerprint: str, signer: Signer | None = None) -> Evaluation | None:
    """Return the evaluation of this fingerprint at `path`, like `find_run`."""
    return _find(path, Evaluation, fingerprint, "evaluation", signer)


def read_run(path: str) -> RunArtifact | None:
    """Return the run at `path`, whichever it is; None where nothing lies there.

    Raises ValueError for what is no run that can be read, InfrastructureError for one of a newer version.
    """
    return _read_stored(path, RunArtifact)


def read_evaluation(path: str) -> Evaluation | None:
    """Return the evaluation at `path`, like `read_run`."""
    return _read_stored(path, Evaluation)


def parse_run(place: str, content: bytes) -> RunArtifact:
    """Return the run that lay at `place`. Raises ValueError and InfrastructureError like `read_run`."""
    return _parse(place, content, RunArtifact)


def parse_evaluation(place: str, content: bytes) -> Evaluation:
    """Return the evaluation that lay at `place`, like `parse_run`."""
    return _parse(place, content, Evaluation)


def refuse_newer(path: str) -> None:
    """Raise InfrastructureError where a newer version wrote what lies at `path`: it must not be overwritten."""
    try:
        content = read_file(path)
    except OSError:
        return
    _refuse_newer(path, content)


def _find(path: str, kind: type[R], fingerprint: str, name: Kind, signer: Signer | None) -> R | None:
    try:
        content = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _OUR_OWN_LIMITS:  # the run may be there: nobody should pay for it again
            raise _cannot_be_read(path, error) from error
        return None
    if f'"fingerprint":"{fingerprint}"'.encode() not in content:  # most that are not it, without parsing them
        return None
    if signer is not None and not signer.accepts(name, content):
        return None
    try:
        found = _read(content, kind)
    except ValidationError:
        return None
    return found if found.fingerprint == fingerprint else None


def _read_stored(path: str, kind: type[R]) -> R | None:
    try:
        content = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(str(error)) from error
    return _parse(path, content, kind)


def _parse(place: str, content: bytes, kind: type[R]) -> R:
    try:
        return _read(content, kind)
    except ValidationError:
        _refuse_newer(place, content)
        raise


def _load(path: Path, kind: type[R]) -> R:
    try:
        content = read_file(path)
    except OSError as error:
        raise _cannot_be_read(path, error) from error
    try:
        return _read(content, kind)
    except ValidationError as error:
        _refuse_newer(path, content)
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()[:3])
        raise InfrastructureError(
            f"{path}: is no {kind.__name__} of schema_version {VERSION}: {problems}. "
            "Delete the file to run the case again, or read it with the version that wrote it"
        ) from error


def _cannot_be_read(path: str | Path, error: OSError) -> InfrastructureError:
    return InfrastructureError(f"{path}: cannot be read: {error.strerror or error}")


def _refuse_newer(path: str | Path, content: bytes) -> None:
    try:
        version = json.loads(content)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if type(version) is int and version > VERSION:
        raise InfrastructureError(
            f"{path}: found schema_version {version}, expected at most {VERSION}; it is left as it is: read it with "
            "the version of pytest-agentbench that wrote it, or name another folder with --agentbench-output"
        )


def _read(content: bytes, kind: type[R]) -> R:
    """Return the record of a document, signed or not. Raises ValidationError."""
    # Try the newest version first: nearly all documents are of it, and are parsed once, by pydantic's own parser.
    content = strip_signature(content)
    try:
        return kind.model_validate_json(content)
    except ValidationError:
        older = _migrate(content)
        if older is None:
            raise
    return kind.model_validate_json(json.dumps(older))


def _migrate(content: bytes) -> dict[str, Any] | None:
    """Return a document of an older version as this version has it; None for anything else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or type(document.get("schema_version")) is not int:
        return None
    if document["schema_version"] not in _MIGRATIONS:
        return None
    while (version := document["schema_version"]) in _MIGRATIONS:
        document = {**_MIGRATIONS[version](document), "schema_version": version + 1}
    return document
