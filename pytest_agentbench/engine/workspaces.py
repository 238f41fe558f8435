"""Compare, keep and put back the folder that a run has left, and single files of it that people look at."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from mimetypes import MimeTypes
from pathlib import Path
from typing import Any, BinaryIO

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.checks.base import typed_spec
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.job import Job, KeptFiles
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import CustomCheck
from pytest_agentbench.records.run import WORKSPACE_NOTE, FileChange, OutputArtifact, RunArtifact, answers_with_files
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.documents import OUTPUT_TYPE, find_whole_archive, find_whole_file
from pytest_agentbench.workspaces.archive import ArchiveError, pack_workspace, unpack_workspace
from pytest_agentbench.workspaces.changes import EMPTY, Snapshot, compare_snapshots, take_snapshot
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.workspace import TreeError, Workspace

MAX_OUTPUTS = 20
"""The most files that are kept of a run."""

MAX_OUTPUT_BYTES = 2 * 2**20
"""The largest of them."""

_MAX_BYTES = 10 * 2**20  # of all of a run together
_TYPES = MimeTypes()  # Python's own types, without the machine's additions


def store_outputs(
    job: Job, run_id: str, workspace: Workspace, changes: Sequence[FileChange], named: Iterable[str]
) -> tuple[OutputArtifact, ...]:
    """Store the `named` files, then other files that the run made or changed, up to the limits of number and size.

    An output's id is its path in the workspace. Raises OSError if a file cannot be stored.
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
    """Return the texts of stored files by their paths in the workspace; None for a file that is not UTF-8.

    Missing and damaged files are left out.
    """
    found = ((each.artifact_id, find_whole_file(Path(output), each.uri)) for each in artifacts)
    return {name: _text(read_file(file, follow_link=False)) for name, file in found if file is not None}


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _content(workspace: Workspace, path: str, limit: int) -> bytes | None:
    """Return a regular file of at most `limit` bytes; None for anything else."""
    try:
        return workspace.read_bytes(path, limit)
    except (OSError, PathRefusedError):
        return None


def _store(job: Job, run_id: str, path: str, content: bytes) -> OutputArtifact:
    model_store = job.plan.model_store
    content, name = _redacted(content, model_store.redactor), path.rpartition("/")[2]
    if model_store.redactor is not None:
        name = model_store.redactor.text(name)
    return OutputArtifact(
        artifact_id=path,
        artifact_type=OUTPUT_TYPE,
        uri=model_store.write_output(job.case_id, job.repetition, run_id, name, content),
        media_type=_TYPES.guess_type(path)[0],
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _redacted(content: bytes, redactor: Redactor | None) -> bytes:
    """Return text without secrets; other content unchanged."""
    if redactor is None:
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return redactor.text(text).encode()


_MAX_LEFT_OUT = 1_000


async def keep_workspace(
    attempt: Attempt,
    run_id: str,
    workspace: Workspace,
    before: Snapshot | None,
    template: Path | None,
) -> KeptFiles:
    """Compare the run's workspace with its start, and store its files.

    `before` is the snapshot of its start, a copy of `template`; None for an empty workspace.
    """
    before = before or EMPTY
    if before == EMPTY and _is_empty(workspace):
        return KeptFiles(changes=())
    return await attempt.services.threads.run(partial(_keep, attempt, run_id, workspace, before, template))


def _keep(attempt: Attempt, run_id: str, workspace: Workspace, before: Snapshot, template: Path | None) -> KeptFiles:
    changes, note = _compare(workspace, before, template, _told_first(attempt.case))
    outputs: tuple[OutputArtifact, ...] = ()
    archive = None
    try:
        named = [*_expected(attempt.case, changes or ()), *(_paths_looked_at(attempt) or ())]
        outputs = store_outputs(attempt.job, run_id, workspace, changes or (), named)
        if not _is_empty(workspace):
            archive, left_out = _store_archive(attempt.job, run_id, workspace)
            if left_out:
                note["left_out"] = left_out
    except (ArchiveError, OSError) as error:  # the run is worth more: it is stored without
        note["not_kept"] = getattr(error, "strerror", None) or str(error)
    return KeptFiles(archive, changes, outputs, note)


def _expected(case: Case, changes: Sequence[FileChange]) -> list[str]:
    """Return the file that the case expects, if the run made or changed it."""
    return [each.path for each in changes if each.path == case.expected_artifact and each.after is not None]


def _told_first(case: Case) -> set[str]:
    """Return the paths that checks read. Their changes are listed first, because the list of changes has a limit."""
    typed = filter(None, (typed_spec(leaf) for check in case.checks for _, leaf in check.leaves))
    checked = {path for spec in typed for path in spec.looks_at}
    if case.expected_artifact is None:
        return checked
    return {case.expected_artifact, *checked}


def _compare(
    workspace: Workspace, before: Snapshot, template: Path | None, first: Collection[str]
) -> tuple[tuple[FileChange, ...] | None, dict[str, Any]]:
    """Return the changes, and a note on missing ones."""
    try:
        after = take_snapshot(str(workspace.path))
        if "" in after.unseen:
            return None, {"not_compared": "the folder is gone or cannot be looked into"}
        changes, more = compare_snapshots(before, after, template, workspace, first)
    except (TreeError, OSError) as error:  # the run is worth more: it is stored without
        return None, {"not_compared": str(error)}
    return tuple(changes), {"more_changes": more} if more else {}


def _store_archive(job: Job, run_id: str, workspace: Workspace) -> tuple[str, list[str]]:
    """Return the path of the stored archive, and the files that it lacks."""
    model_store = job.plan.model_store
    left_out: list[str] = []
    redact = model_store.redactor.text if model_store.redactor is not None else str

    def write(target: BinaryIO) -> None:
        left_out.extend(pack_workspace(workspace, target, redact))

    path = model_store.write_workspace(job.case_id, job.repetition, run_id, write)
    if len(left_out) > _MAX_LEFT_OUT:
        left_out = ["."]
    return path, left_out


async def restore_workspace(attempt: Attempt) -> bool:
    """Restore the stored run's workspace, if a check or test reads it. Return False if it cannot be restored."""
    case = attempt.case
    artifact = attempt.result.artifact
    if attempt.result.workspace is not None or artifact is None:
        return attempt.result.workspace is not None
    note = artifact.metadata.get(WORKSPACE_NOTE) or {}
    anywhere = bool(case.verify) or _is_answered_by_files(case, artifact)
    looked_at: Sequence[str] | None = None  # None: anywhere
    if not anywhere:
        looked_at = [] if attempt.job.by_hand else _paths_looked_at(attempt)
    is_kept_whole = not note.keys() & {"not_kept", "left_out"}
    if (artifact.workspace is None and is_kept_whole) or (looked_at == [] and not attempt.job.by_hand):
        return True
    problem = note.get("not_kept") or _lacks(note.get("left_out", []), looked_at)
    if problem is None:
        problem = await _restore(attempt, artifact)
    if problem is not None:
        files = f"{attempt.result.path}: the files of the run"
        attempt.plan.model_store.warn(f"{files} cannot be checked again ({problem}), so {case.case_id} was run again")
    return problem is None


async def _restore(attempt: Attempt, artifact: RunArtifact) -> str | None:
    """Fill in `result.workspace`, or return the problem. Raises SandboxError if the disk is full."""
    workspaces = attempt.services.workspaces()
    workspace = workspaces.create(artifact.case_id)
    try:
        await attempt.services.threads.run(
            partial(_unpack, Path(attempt.plan.model_store.output), artifact.workspace or "", workspace)
        )
    except ArchiveError as error:
        workspaces.remove(workspace)
        return str(error)
    except SandboxError:
        workspaces.remove(workspace)
        raise
    attempt.result.workspace = workspace
    return None


def _unpack(output: Path, path: str, workspace: Workspace) -> None:
    archive = find_whole_archive(output, path)
    if archive is None:
        raise ArchiveError(f"{path} is missing or damaged")
    unpack_workspace(archive, workspace)


def _paths_looked_at(attempt: Attempt) -> Sequence[str] | None:
    """Return the paths that the case's checks look at; None: they may look anywhere."""
    paths: list[str] = []
    hooks_run = attempt.plan.evaluation_profile.security_policy.allow_local_python_hooks
    for leaf in (leaf for check in attempt.case.checks for _, leaf in check.leaves):
        if isinstance(leaf.declarative, CustomCheck) or (leaf.python_hook is not None and hooks_run):
            return None
        if (spec := typed_spec(leaf)) is not None:
            paths += spec.looks_at
        elif (path := getattr(leaf.declarative, "path", None)) is not None:
            paths.append(path)
    return paths


def _is_answered_by_files(case: Case, artifact: RunArtifact) -> bool:
    """Return whether a check takes the files of an agent without an answer as its answer."""
    said = not answers_with_files(artifact.runner_type) or (artifact.final_output or "").strip()
    return not said and any(leaf.kind == "final_response_present" for check in case.checks for _, leaf in check.leaves)


def _lacks(left_out: Sequence[str], looked_at: Sequence[str] | None) -> str | None:
    """Return the file that the checks would miss in the archive."""
    if looked_at is None:
        if left_out:
            return f"{left_out[0] or 'it'} is no regular file or folder"
        return None
    for path in looked_at:
        inside = path.replace("/tmp/", ".tmp/", 1) if path.startswith("/tmp/") else path  # noqa: S108 - the private one
        normal = "/".join(name for name in inside.split("/") if name not in ("", "."))
        for left in left_out:
            if left in (".", "") or f"{normal}/".startswith(f"{left}/"):
                return f"{path} was no regular file or folder"
    return None


def _is_empty(workspace: Workspace) -> bool:
    try:
        kind = workspace.kind(".tmp")
        return not workspace.entries() and (kind is None or (kind == "folder" and not workspace.entries(".tmp")))
    except FileNotFoundError:  # the agent removed it
        return True
    except (OSError, PathRefusedError):
        return False
