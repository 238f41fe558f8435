"""Archives of workspaces, single files and summaries for people, kept beside runs and evaluations."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pytest_agentbench.bounded.files import open_descriptor
from pytest_agentbench.records.evaluation import Evaluation, JudgeResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.files import RUNS, make_folder, slug, temporary_file, write_atomically
from pytest_agentbench.terminal_text import visible

# What runs left in their workspaces, beside the runs: an archive of all, and single files that people look at.
#
#     run_<n>.artifacts/workspace.<run>.<sha>.tar
#     run_<n>.artifacts/outputs/<run>.<sha>.<name>
#
# A name says what its file holds, so a damaged one shows.


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
    """Store what `pack` writes beside the run to be written at `run` (a path without `.json`). Return its path.

    Paths are relative to the output folder. Raises OSError, and what `pack` raises.
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
    readable = f"{slug(stem)}{suffix}" if _SUFFIX.fullmatch(suffix) else slug(name.lower())
    file = f"{run_id[:8]}.{hashlib.sha256(content).hexdigest()[:_DIGITS]}.{readable}"
    write_atomically(f"{output}/{folder}", file, content)
    return f"{folder}/{file}"


def list_kept_files(run: RunArtifact) -> list[str]:
    """Return the paths of the files that a run names as left behind: its outputs, then the archive."""
    outputs = [each.uri for each in run.output_artifacts if each.artifact_type == OUTPUT_TYPE]
    return outputs if run.workspace is None else [*outputs, run.workspace]


def find_whole_archive(output: Path, path: str) -> Path | None:
    """Return the archive that a run names by its `workspace`;
    None where it is missing, damaged or no archive's path.
    """
    return _find_whole(output, path, _ARCHIVE)


def find_whole_file(output: Path, path: str) -> Path | None:
    """Return any of `list_kept_files` like `find_whole_archive`."""
    return _find_whole(output, path, _ARCHIVE) or _find_whole(output, path, _OUTPUT)


def _find_whole(output: Path, path: str, pattern: re.Pattern[str]) -> Path | None:
    named = pattern.fullmatch(path)
    if named is None or _find_link(output, os.path.dirname(path)):
        return None
    try:
        # The name holds the digest: a file that a full disk cut short, or that somebody changed, does not match it.
        with os.fdopen(open_descriptor(output / path)[0], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
    return output / path if digest.startswith(named[1]) else None


def is_beside(run: str, path: str) -> bool:
    """Return whether a kept file lies beside the run at `run` (a path without `.json`):
    a run may name that of another.
    """
    folder = os.path.dirname(path).removesuffix(f"/{OUTPUTS}")
    return folder == f"{run}.artifacts" and bool(_ARCHIVE.fullmatch(path) or _OUTPUT.fullmatch(path))


def remove_kept(output: str, run: str, paths: Iterable[str]) -> None:
    """Remove the kept files of a run that is no more, where they lie beside it."""
    for path in paths:
        if is_beside(run, path) and not _find_link(output, os.path.dirname(path)):
            with contextlib.suppress(OSError):
                os.unlink(f"{output}/{path}")


def _make_folder(output: str, folder: str) -> None:
    """Make a folder of kept files. Raises OSError, also where somebody has put a link there."""
    if (link := _find_link(output, folder)) is not None:
        # An agent or a guest's artifact may have left the link: writing through it would leave the output folder.
        raise OSError(errno.ELOOP, "Is a link to another folder, which is not followed", link)
    make_folder(f"{output}/{folder}")


def _find_link(output: str | Path, folder: str) -> str | None:
    """Return the link in the place of a folder of kept files, or of the one above; None where there is none."""
    artifacts = f"{output}/{folder.removesuffix(f'/{OUTPUTS}')}"
    return next(filter(os.path.islink, {artifacts: 1, f"{output}/{folder}": 1}), None)


_MARKS = re.compile(r"([\\`<\[|&])")
"""What begins code, HTML, links, images, cells of tables and entities."""

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
            asked = "" if metric.threshold is None else f" (at least {metric.threshold:g})"
            reason = metric.details.get("reason")
            yield f"- {metric.name}: {value}{asked}{f': {escape(reason)}' if isinstance(reason, str) else ''}"
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
    if judge.expectations is not None:
        yield f"\nExpectations met: {judge.expectations:.0%}"
    yield from (f"- not met: {escape(text)}" for text in judge.unmet_hard)
    if judge.summary:
        yield f"\n> {escape(judge.summary)}"
