"""Stored runs and evaluations as documents: signed and read back."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from pydantic import ValidationError

from pytest_agentbench.bounded.files import open_descriptor
from pytest_agentbench.bounded.folders import make_folder, slug
from pytest_agentbench.bounded.writing import temporary_file, write_atomically
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.evaluation import Evaluation, JudgeResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.output_folder import RUNS
from pytest_agentbench.terminal_text import count_text, visible

# Signatures of stored records (HMAC-SHA256), for stores that others can write to: nobody can forge one without the key.
#
# A signature is the last member of a record's JSON object. It covers the preceding members and the record's kind. A run
# contains the hashes of its kept files, so these are covered too.


Kind = Literal["run", "evaluation", "vote"]

_HEAD, _END = b',"signature":"', b'"}'
_LENGTH = len(_HEAD) + 2 * hashlib.sha256().digest_size + len(_END)
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
        """Return the number of refused records as a sentence, or None."""
        if not self.refused:
            return None
        counts = ", ".join(count_text(count, kind) for kind, count in self.refused.items())
        return f"{counts} of the store had no signature of --agentbench-store-key's key and were ignored"

    def _signature(self, kind: Kind, record: bytes) -> bytes:
        return hmac.new(self._key, _PURPOSE + kind.encode() + b" " + record, hashlib.sha256).hexdigest().encode()


def strip_signature(content: bytes) -> bytes:
    """Return a stored document without its signature, or the same object if it has none."""
    if content[-_LENGTH:].startswith(_HEAD) and content.endswith(_END):
        return content[:-_LENGTH] + b"}"
    return content


R = TypeVar("R", RunArtifact, Evaluation)

VERSION = 2
"""The `schema_version` of runs and evaluations that this package writes and reads."""


def load_run(output: str | Path, path: str) -> RunArtifact:
    """Return the run that is stored at `path` in an output folder.

    Raises InfrastructureError for one that is missing, broken or of a newer version.
    """
    return _load(Path(output), path, RunArtifact)


def load_evaluation(output: str | Path, path: str) -> Evaluation:
    """Return the evaluation of a `final_result_<n>.json`. Raises InfrastructureError like `load_run`."""
    return _load(Path(output), path, Evaluation)


def match_run(content: bytes, fingerprint: str, signer: Signer | None = None) -> RunArtifact | None:
    """Return the run of a document, or None if the fingerprint differs, it cannot be read, or the signer refuses it."""
    return _match(content, RunArtifact, fingerprint, "run", signer)


def match_evaluation(content: bytes, fingerprint: str, signer: Signer | None = None) -> Evaluation | None:
    """Return the evaluation of a document, like `match_run`."""
    return _match(content, Evaluation, fingerprint, "evaluation", signer)


def parse_run(place: str, content: bytes) -> RunArtifact:
    """Return the run of a document; `place` is used in messages.

    Raises ValueError if it is not a readable run, InfrastructureError if a newer version wrote it.
    """
    return _parse(place, content, RunArtifact)


def parse_evaluation(place: str, content: bytes) -> Evaluation:
    """Return the evaluation of a document, like `parse_run`."""
    return _parse(place, content, Evaluation)


def refuse_newer(path: str | Path, content: bytes) -> None:
    """Raise InfrastructureError if a newer version wrote the document at `path`, which must not be overwritten."""
    try:
        version = json.loads(content)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if type(version) is int and version > VERSION:
        raise InfrastructureError(
            f"{path}: found schema_version {version}, expected at most {VERSION}; it is left as it is: read it with "
            "the version of pytest-agentbench that wrote it, or name another folder with --agentbench-output"
        )


def _match(content: bytes, kind: type[R], fingerprint: str, name: Kind, signer: Signer | None) -> R | None:
    if f'"fingerprint":"{fingerprint}"'.encode() not in content:  # most that are not it, without parsing them
        return None
    if signer is not None and not signer.accepts(name, content):
        return None
    try:
        record = _read(content, kind)
    except ValidationError:
        return None
    if record.fingerprint == fingerprint:
        return record
    return None


def _parse(place: str, content: bytes, kind: type[R]) -> R:
    try:
        return _read(content, kind)
    except ValidationError:
        refuse_newer(place, content)
        raise


def _load(output: Path, path: str, kind: type[R]) -> R:
    place = output / path
    try:
        content = open_documents(output).read(path)
    except OSError as error:
        raise make_read_error(place, error) from error
    if content is None:
        raise InfrastructureError(f"{place}: cannot be read: {os.strerror(errno.ENOENT)}")
    try:
        return _read(content, kind)
    except ValidationError as error:
        refuse_newer(place, content)
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()[:3])
        raise InfrastructureError(
            f"{place}: is no {kind.__name__} of schema_version {VERSION}: {problems}. "
            "Remove it (agentbench store prune --unreadable) to run the case again, or read it with the version that "
            "wrote it"
        ) from error


def make_read_error(path: str | Path, error: OSError) -> InfrastructureError:
    """Return the error for a file or folder that cannot be read."""
    return InfrastructureError(f"{path}: cannot be read: {error.strerror or error}")


def _read(content: bytes, kind: type[R]) -> R:
    """Return the record of a document, signed or not. Raises ValidationError."""
    return kind.model_validate_json(strip_signature(content))


# Files that runs left in their workspaces: an archive of all of them, and single files for people.
#
#     run_<n>.artifacts/workspace.<run>.<sha>.tar
#     run_<n>.artifacts/outputs/<run>.<sha>.<name>
#
# A name contains the hash of the content, so a damaged file is detected.


OUTPUTS = "outputs"
"""The folder of those single files."""

OUTPUT_TYPE = "workspace_file"
"""The `artifact_type` of files that runs left in their workspaces."""

_DIGITS = 16
_FOLDER = rf"{RUNS}/(?:[a-z0-9][a-z0-9._-]*/)+run_\d+\.artifacts"
_SHA = rf"([0-9a-f]{{{_DIGITS}}})"
_ARCHIVE = re.compile(rf"{_FOLDER}/workspace\.\w+\.{_SHA}\.tar")
_OUTPUT = re.compile(rf"{_FOLDER}/{OUTPUTS}/\w+\.{_SHA}\.[a-z0-9][a-z0-9._-]*")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


def write_archive(output: str, run: str, run_id: str, pack: Callable[[BinaryIO], None]) -> str:
    """Store the output of `pack` in the artifacts folder of the run at `run` (a path without `.json`). Return its path.

    Paths are relative to the output folder. Raises OSError and the errors of `pack`.
    """
    folder = f"{run}.artifacts"
    _make_folder(output, folder)
    with temporary_file(f"{output}/{folder}") as file:
        pack(file)
        file.seek(0)
        path = f"{folder}/workspace.{run_id[:8]}.{hashlib.file_digest(file, 'sha256').hexdigest()[:_DIGITS]}.tar"
        os.replace(file.name, f"{output}/{path}")
    return path


def write_output(output: str, run: str, run_id: str, name: str, content: bytes) -> str:
    """Store a file that a run left under `name`, like an archive. Return its path. Raises OSError."""
    folder = f"{run}.artifacts/{OUTPUTS}"
    _make_folder(output, folder)
    stem, suffix = os.path.splitext(name.lower())
    readable = slug(name.lower())
    if _SUFFIX.fullmatch(suffix):
        readable = f"{slug(stem)}{suffix}"
    file = f"{run_id[:8]}.{hashlib.sha256(content).hexdigest()[:_DIGITS]}.{readable}"
    write_atomically(f"{output}/{folder}", file, content)
    return f"{folder}/{file}"


def list_kept_files(run: RunArtifact) -> list[str]:
    """Return the paths of the files that a run names as left behind: its outputs, then the archive."""
    outputs = [artifact.uri for artifact in run.output_artifacts if artifact.artifact_type == OUTPUT_TYPE]
    if run.workspace is None:
        return outputs
    return [*outputs, run.workspace]


def find_whole_archive(output: Path, path: str) -> Path | None:
    """Return the archive at a run's `workspace`; None if it is missing, damaged or not at an archive's path."""
    return _find_whole(output, path, _ARCHIVE)


def find_whole_file(output: Path, path: str) -> Path | None:
    """Return any of `list_kept_files` like `find_whole_archive`."""
    return _find_whole(output, path, _ARCHIVE) or _find_whole(output, path, _OUTPUT)


def _find_whole(output: Path, path: str, pattern: re.Pattern[str]) -> Path | None:
    match = pattern.fullmatch(path)
    if match is None or _find_link(output, os.path.dirname(path)):
        return None
    try:
        # The name holds the digest: a file that a full disk cut short, or that somebody changed, does not match it.
        with os.fdopen(open_descriptor(output / path, follow_link=False)[0], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    if digest.startswith(match[1]):
        return output / path
    return None


def is_beside(run: str, path: str) -> bool:
    """Return whether a kept file is in the artifacts folder of the run at `run` (a path without `.json`).

    A run may name the files of another run.
    """
    folder = os.path.dirname(path).removesuffix(f"/{OUTPUTS}")
    return folder == f"{run}.artifacts" and bool(_ARCHIVE.fullmatch(path) or _OUTPUT.fullmatch(path))


def remove_kept(output: str, run: str, paths: Iterable[str]) -> None:
    """Remove the kept files of a removed run, if they are in its artifacts folder."""
    for path in paths:
        if is_beside(run, path) and not _find_link(output, os.path.dirname(path)):
            with contextlib.suppress(OSError):
                os.unlink(f"{output}/{path}")


def _make_folder(output: str, folder: str) -> None:
    """Make a folder of kept files. Raises OSError, also if it is a link."""
    if (link := _find_link(output, folder)) is not None:
        # An agent or a guest's artifact may have left the link: writing through it would leave the output folder.
        raise OSError(errno.ELOOP, "Is a link to another folder, which is not followed", link)
    make_folder(f"{output}/{folder}")


def _find_link(output: str | Path, folder: str) -> str | None:
    """Return the path of a folder of kept files or of its parent if that is a link, else None."""
    artifacts = f"{output}/{folder.removesuffix(f'/{OUTPUTS}')}"
    return next(filter(os.path.islink, {artifacts: 1, f"{output}/{folder}": 1}), None)


_MARKS = re.compile(r"([\\`<\[|&])")
"""Characters that begin code, HTML, links, images, table cells and entities."""

_Escape = Callable[[str], str]


def render_summary(evaluation: Evaluation, repetition: int, redact: Callable[[str], str] = str) -> str:
    """Render an evaluation as Markdown of a screen or less: outcome, reasons, checks, metrics, the judge's scores.

    Texts of others are redacted as they are, then made such that neither a terminal nor a viewer of Markdown finds
    anything in them to obey.
    """

    def escape(text: str) -> str:
        # Redact first: escapes and cut blanks would hide a key from the redactor.
        return _MARKS.sub(r"\\\1", visible(" ".join(redact(text).split())))

    return "\n".join(_render_lines(evaluation, repetition, escape)) + "\n"


def _render_lines(evaluation: Evaluation, repetition: int, escape: _Escape) -> Iterator[str]:
    yield f"# {escape(evaluation.case_id)}, repetition {repetition}: {evaluation.outcome}"
    if evaluation.error is not None:
        yield f"\n{escape(evaluation.error)}"
    if evaluation.reasons:
        yield "\n## Why\n"
        yield from (f"- {escape(reason)}" for reason in evaluation.reasons)
    if evaluation.checks:
        yield "\n## Checks\n"
        yield from (f"- {check.outcome}: `{check.check_id}`: {escape(check.message)}" for check in evaluation.checks)
    if evaluation.metrics:
        yield "\n## Metrics\n"
        for metric in evaluation.metrics:
            value = escape(metric.error or "none") if metric.score is None else f"{metric.score:.4g}"
            line = f"- {metric.name}: {value}"
            if metric.threshold is not None:
                line += f" (at least {metric.threshold:g})"
            if isinstance(reason := metric.details.get("reason"), str):
                line += f": {escape(reason)}"
            yield line
    if evaluation.judge is not None:
        yield from _render_judge(evaluation.judge, escape)


def _render_judge(judge: JudgeResult, escape: _Escape) -> Iterator[str]:
    succeeded = sum(iteration.status == "success" for iteration in judge.iterations)
    yield f"\n## Judge: {judge.overall:.4g} of 10 ({'passed' if judge.passed else 'failed'})\n"
    yield (
        f"Method: {judge.method}; verdicts used: {judge.sampled}; iterations that succeeded: {succeeded} of "
        f"{len(judge.iterations)}; passes at {10 * judge.pass_threshold:.4g}.\n"
    )
    yield "| dimension | score | |\n|---|---|---|"
    for dimension, score in judge.dimensions.items():
        yield f"| {dimension} | {score:.4g} | {'below' if dimension in judge.failed_dimensions else ''} |"
    if judge.criteria:
        yield "\n| criterion | score | evidence |\n|---|---|---|"
        for name, scored in judge.criteria.items():
            yield f"| {escape(name)} | {scored.score:.4g} | {escape('; '.join(scored.evidence))} |"
    if judge.expectations is not None:
        yield f"\nExpectations met: {judge.expectations:.0%}"
    yield from (f"- not met: {escape(text)}" for text in judge.unmet_hard)
    if judge.summary:
        yield f"\n> {escape(judge.summary)}"
