"""The files that a run has left for people to look at: each is kept by itself, beside the archive of them all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from mimetypes import MimeTypes
from pathlib import Path

from pytest_agentbench.bounded import read_file
from pytest_agentbench.engine.job import Job
from pytest_agentbench.records import FileChange, OutputArtifact
from pytest_agentbench.store import OUTPUT_TYPE, Redactor, whole_file
from pytest_agentbench.workspaces import PathRefusedError, Workspace

MAX_OUTPUTS = 20
"""The most files that are kept of a run."""

MAX_OUTPUT_BYTES = 2 * 2**20
"""The largest of them."""

_MAX_BYTES = 10 * 2**20  # of all of a run together
_TYPES = MimeTypes()  # Python's own, not what the machine adds


def store_outputs(
    job: Job, run_id: str, workspace: Workspace, changes: Sequence[FileChange], named: Iterable[str]
) -> tuple[OutputArtifact, ...]:
    """Keeps the files that are `named`, then others that the run made or changed, as far as they are few and small.

    An output's id is its path in the workspace. Raises OSError where they cannot be stored.
    """
    made = [each.path for each in changes if each.change != "mode" and each.after is not None]
    outputs: list[OutputArtifact] = []
    room = _MAX_BYTES
    for path in dict.fromkeys([*named, *made]):
        content = _content(workspace, path, min(room, MAX_OUTPUT_BYTES))
        if content is None:
            continue
        output = _store(job, run_id, path, content)
        room -= len(content)
        outputs.append(output)
        if len(outputs) == MAX_OUTPUTS:
            break
    return tuple(outputs)


def output_texts(output: str, artifacts: Iterable[OutputArtifact]) -> dict[str, str | None]:
    """What files that were kept in the output folder hold, by their paths in the workspace; None for what is no text.

    Those that are gone or damaged are left out.
    """
    found = ((each.artifact_id, whole_file(Path(output), each.uri)) for each in artifacts)
    return {name: _text(read_file(file)) for name, file in found if file is not None}


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _content(workspace: Workspace, path: str, limit: int) -> bytes | None:
    """A regular file of at most `limit` bytes; None for anything else."""
    try:
        return workspace.read_bytes(path, limit)
    except (OSError, PathRefusedError):
        return None


def _store(job: Job, run_id: str, path: str, content: bytes) -> OutputArtifact:
    lane = job.plan.lane
    content, name = _redacted(content, lane.redactor), path.rpartition("/")[2]
    if lane.redactor is not None:
        name = lane.redactor.text(name)
    return OutputArtifact(
        artifact_id=path,
        artifact_type=OUTPUT_TYPE,
        uri=lane.write_output(job.case_id, job.repetition, run_id, name, content),
        media_type=_TYPES.guess_type(path)[0],
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _redacted(content: bytes, redactor: Redactor | None) -> bytes:
    """Text without secrets; what is no text as it is."""
    if redactor is None:
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return redactor.text(text).encode()
