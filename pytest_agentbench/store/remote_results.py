"""Runs and evaluations as objects of a shared store. Their names hold what makes them differ, so that no writer is in
another's way; an object is JSON Lines: the record first, then what lies beside it in the output folder.

    runs/run_profile_<fp>/<model>/<case>/run_<n>.<fp>.jsonl                    the run; its fingerprint's input
    .../run_<n>.<fp>.unsuccessful.jsonl                                         the same, where it ended otherwise
    .../run_<n>.workspace.<run>.<sha>.tar                                       what it left in its workspace
    .../run_<n>.outputs.<run>.<sha>.<name>                                      a single file of that
    evaluations/run_profile_<fp>/<model>/<case>/final_result_<n>.<fp>.<run>.jsonl    the verdict; what judges were shown
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.errors import DamagedObjectError, UnwritableError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.documents import (
    OUTPUT_TYPE,
    OUTPUTS,
    Kind,
    find_whole_file,
    list_kept_files,
    parse_evaluation,
    parse_run,
)
from pytest_agentbench.store.output_folder import EVALUATIONS, RUNS, explain_unwritable
from pytest_agentbench.store.remote import Upload

if TYPE_CHECKING:
    from pytest_agentbench.store.artifacts import ModelStore
    from pytest_agentbench.store.remote import Remote

R = TypeVar("R", RunArtifact, Evaluation)

_DIGITS = 16
"""How many hex digits of a fingerprint a name holds; what is in an object is compared in full."""
_RUN_ID_DIGITS = 8
_RUN_ID = re.compile(r"\w+")
_ARCHIVE = re.compile(r"workspace\.\w+\.([0-9a-f]{16})\.tar")
_OUTPUT = re.compile(r"\w+\.([0-9a-f]{16})\.([a-z0-9][a-z0-9._-]*)")


def share_run(model_store: ModelStore, artifact: RunArtifact, *, made: bool) -> None:
    """Bring a stored run to the remote store; a run that was reused is sent only if it is missing there."""
    if model_store.remote is None or artifact.fingerprint is None:
        return
    folder = _folder(model_store, RUNS, artifact.case_id)
    name = _name_run_object(folder, artifact.repetition, artifact.fingerprint, successful=artifact.status == "success")
    key = (artifact.case_id, artifact.repetition, artifact.fingerprint, artifact.run_id)
    read = partial(_encode_run_object, model_store, *key)
    # The record goes last: who finds it can fetch all that it names.
    files = [
        (_name_kept_object(folder, artifact, path), partial(_read_kept, model_store, path))
        for path in list_kept_files(artifact)
    ]
    send = model_store.remote.send if made else model_store.remote.offer
    send(Upload(_prefix(model_store, RUNS), (*files, (name, read))))


def share_evaluation(model_store: ModelStore, artifact: RunArtifact, evaluation: Evaluation, *, made: bool) -> None:
    """Send a stored verdict to the remote store like `share_run`, unless its outcome is an error."""
    if model_store.remote is None or evaluation.fingerprint is None or evaluation.outcome == "error":
        return
    name = _name_evaluation_object(model_store, artifact, evaluation.fingerprint)
    read = partial(
        _encode_evaluation_object,
        model_store,
        artifact.case_id,
        artifact.repetition,
        evaluation.fingerprint,
        artifact.run_id,
    )
    send = model_store.remote.send if made else model_store.remote.offer
    send(Upload(_prefix(model_store, EVALUATIONS), ((name, read),)))


async def pull_run(
    model_store: ModelStore,
    case_id: str,
    repetition: int,
    run_fingerprint: str,
    fingerprint_input: bytes,
    *,
    counts: Callable[[RunArtifact], bool],
    unsuccessful: bool,
) -> RunArtifact | None:
    """Fetch a run that counts, and its kept files, into the output folder; None if there is none.

    With `unsuccessful` a run that did not succeed may count. A run with a damaged object counts as missing, with a
    warning. Raises UnreachableError if the store does not answer, InfrastructureError if a newer version wrote the run.
    """
    if model_store.remote is None:
        return None
    folder = _folder(model_store, RUNS, case_id)
    # Unsuccessful runs have other names, so that an outage on one machine replaces no success of another
    for successful in (True, False) if unsuccessful else (True,):
        name = _name_run_object(folder, repetition, run_fingerprint, successful=successful)
        try:
            content = await model_store.remote.get(name)
            artifact = _parse_object(model_store, name, content, parse_run, "run")
            if artifact is None or not _RUN_ID.fullmatch(artifact.run_id):
                continue
            key = (artifact.case_id, artifact.repetition, artifact.fingerprint)
            if key != (case_id, repetition, run_fingerprint) or not counts(artifact):
                continue
            whole = await _fetch_outputs(
                model_store, model_store.remote, await _fetch_workspace(model_store, model_store.remote, artifact)
            )
        except DamagedObjectError as error:
            _warn_of_damage(model_store, error)
            continue
        model_store.write_run(whole, fingerprint_input)
        return whole
    return None


async def pull_evaluation(model_store: ModelStore, artifact: RunArtifact, evaluation_fingerprint: str) -> bool:
    """Fetch the verdict on a run like `pull_run`."""
    if model_store.remote is None:
        return False
    name = _name_evaluation_object(model_store, artifact, evaluation_fingerprint)
    try:
        content = await model_store.remote.get(name)
    except DamagedObjectError as error:
        _warn_of_damage(model_store, error)
        return False
    evaluation = _parse_object(model_store, name, content, parse_evaluation, "evaluation")
    if evaluation is None:
        return False
    key = (evaluation.case_id, evaluation.run_id, evaluation.fingerprint)
    if key != (artifact.case_id, artifact.run_id, evaluation_fingerprint):
        return False
    assert content is not None
    model_store.write_evaluation(artifact.repetition, evaluation, _parse_prompts(content))
    return True


def _warn_of_damage(model_store: ModelStore, error: DamagedObjectError) -> None:
    model_store.warn(f"{error}, so it counts as missing and is made again")


async def _fetch_kept(
    model_store: ModelStore, remote: Remote, artifact: RunArtifact, path: str, digest: str
) -> bytes | None:
    """Return a run's file, or None. Raises DamagedObjectError if its SHA-256 does not begin with `digest`."""
    name = _name_kept_object(_folder(model_store, RUNS, artifact.case_id), artifact, path)
    content = await remote.get(name)
    if content is not None and not hashlib.sha256(content).hexdigest().startswith(digest):
        raise DamagedObjectError(f"{remote.url}/{name}: its content does not have the SHA-256 of its name")
    return content


async def _fetch_workspace(model_store: ModelStore, remote: Remote, artifact: RunArtifact) -> RunArtifact:
    """Return the run with its workspace archive fetched to its place in this output folder."""
    _, _, name = (artifact.workspace or "").rpartition("/")
    if (match := _ARCHIVE.fullmatch(name)) is None:  # any other path may lead elsewhere
        return artifact
    if (content := await _fetch_kept(model_store, remote, artifact, name, match[1])) is None:
        return artifact
    key = (artifact.case_id, artifact.repetition, artifact.run_id)
    try:
        path = model_store.write_workspace(*key, partial(_write_content, content))
    except OSError as error:
        raise UnwritableError(explain_unwritable(model_store.output, error)) from error
    return artifact.model_copy(update={"workspace": path})


async def _fetch_outputs(model_store: ModelStore, remote: Remote, artifact: RunArtifact) -> RunArtifact:
    """Return the run with the single files that it left, fetched like its workspace."""
    outputs = []
    for output in artifact.output_artifacts:
        _, _, name = output.uri.rpartition("/")
        match = _OUTPUT.fullmatch(name) if output.artifact_type == OUTPUT_TYPE else None
        content = None
        if match is not None:
            content = await _fetch_kept(model_store, remote, artifact, f"{OUTPUTS}/{name}", match[1])
        # A missing file keeps its name, and `store verify` reports it
        if match is not None and content is not None:
            key = (artifact.case_id, artifact.repetition, artifact.run_id)
            try:
                uri = model_store.write_output(*key, match[2], content)
            except OSError as error:
                raise UnwritableError(explain_unwritable(model_store.output, error)) from error
            output = output.model_copy(update={"uri": uri})
        outputs.append(output)
    return artifact.model_copy(update={"output_artifacts": tuple(outputs)})


def _write_content(content: bytes, file: BinaryIO) -> None:
    file.write(content)


# -- names


def _prefix(model_store: ModelStore, kind: str) -> str:
    return f"{kind}/run_profile_{_shorten_fingerprint(model_store.run_settings)}/{model_store.model}"


def _folder(model_store: ModelStore, kind: str, case_id: str) -> str:
    return f"{_prefix(model_store, kind)}/{slug(case_id)}"


def _name_run_object(folder: str, repetition: int, run_fingerprint: str, *, successful: bool) -> str:
    suffix = ".jsonl" if successful else ".unsuccessful.jsonl"
    return f"{folder}/run_{repetition}.{run_fingerprint[:_DIGITS]}{suffix}"


def _name_kept_object(folder: str, artifact: RunArtifact, path: str) -> str:
    """Return the object of an archive or a single file that a run left."""
    within, _, name = path.rpartition("/")
    outputs = f"{OUTPUTS}." if within.endswith(OUTPUTS) else ""
    return f"{folder}/run_{artifact.repetition}.{outputs}{name}"


def _name_evaluation_object(model_store: ModelStore, artifact: RunArtifact, evaluation_fingerprint: str) -> str:
    folder = _folder(model_store, EVALUATIONS, artifact.case_id)
    versions = f"{evaluation_fingerprint[:_DIGITS]}.{artifact.run_id[:_RUN_ID_DIGITS]}"
    return f"{folder}/final_result_{artifact.repetition}.{versions}.jsonl"


@lru_cache(maxsize=64)
def _shorten_fingerprint(settings: bytes) -> str:
    return fingerprint(settings)[:_DIGITS]


# -- contents


def _encode_run_object(
    model_store: ModelStore, case_id: str, repetition: int, run_fingerprint: str, run_id: str
) -> bytes | None:
    document = _find_document(
        model_store, f"{model_store.runs}/{slug(case_id)}", "run", repetition, run_fingerprint, run_id
    )
    if document is None:
        return None
    path, content = document
    covered = model_store.documents.read(f"{path.removesuffix('.json')}.fingerprint_input.json")
    return _join_lines(content, covered)


def _encode_evaluation_object(
    model_store: ModelStore, case_id: str, repetition: int, evaluation_fingerprint: str, run_id: str
) -> bytes | None:
    document = _find_document(
        model_store,
        f"{model_store.evaluations}/{slug(case_id)}",
        "final_result",
        repetition,
        evaluation_fingerprint,
        run_id,
    )
    if document is None:
        return None
    path, content = document
    folder, _, name = path.rpartition("/")
    prompts = name.replace("final_result_", "judge_").replace(".json", ".prompt.user.json")
    return _join_lines(content, model_store.documents.read(f"{folder}/{prompts}"))


def _find_document(
    model_store: ModelStore, folder: str, kind: str, repetition: int, wanted_fingerprint: str, run_id: str
) -> tuple[str, bytes] | None:
    """Return the document to be shared, at its current path; None if another session has displaced it."""
    # Compare both: a repeated run has the same fingerprint, and the object's name contains the run_id.
    marks = (f'"fingerprint":"{wanted_fingerprint}"'.encode(), f'"run_id":"{run_id}"'.encode())
    for path, content in model_store.find_documents(folder, kind, repetition, wanted_fingerprint):
        if all(mark in content for mark in marks):
            return path, content
    return None


def _read_kept(model_store: ModelStore, path: str) -> bytes | None:
    """Return an intact file of a run, or None. The path comes from a file and may lead anywhere."""
    file = find_whole_file(Path(model_store.output), path)
    if file is None:
        return None
    return read_file(file, follow_link=False)


def _join_lines(*documents: bytes | None) -> bytes:
    """Return JSON documents as one line each: a line break in JSON is always a blank."""
    return b"".join(document.replace(b"\n", b" ") + b"\n" for document in documents if document is not None)


def _parse_object(
    model_store: ModelStore, name: str, content: bytes | None, parse: Callable[[str, bytes], R], kind: Kind
) -> R | None:
    """Return an object's record, or None with a warning. Raises InfrastructureError for a newer version."""
    if content is None or model_store.remote is None:
        return None
    # Only the first line is signed. The others explain it.
    place, record = f"{model_store.remote.url}/{name}", content.partition(b"\n")[0]
    if model_store.signer is not None and not model_store.signer.accepts(kind, record):
        return None
    try:
        return parse(place, record)
    except ValueError as error:
        model_store.warn(f"{place}: cannot be read, so it counts as missing: {str(error).splitlines()[0]}")
        return None


def _parse_prompts(content: bytes) -> Sequence[Mapping[str, Any]]:
    """Return the prompts of an evaluation's judges."""
    _, _, prompts = content.partition(b"\n")
    try:
        value = json.loads(prompts or b"[]")
    except (ValueError, RecursionError):
        return ()
    if isinstance(value, list):
        return value
    return ()
