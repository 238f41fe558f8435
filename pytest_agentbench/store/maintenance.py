"""Prune unneeded documents from an output folder, and verify the rest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.identity.fingerprints import canonical_json
from pytest_agentbench.records.evaluation import Evaluation, JudgeResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.secrets.redaction import REDACTED
from pytest_agentbench.store.claims import is_claimed
from pytest_agentbench.store.contents import Contents, Folder, Kind, is_verdict_on
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import (
    OUTPUTS,
    find_whole_file,
    is_beside,
    list_kept_files,
    load_evaluation,
    load_run,
    parse_evaluation,
    parse_run,
    strip_signature,
)
from pytest_agentbench.store.judgements import StoredVerdict
from pytest_agentbench.store.output_folder import DATABASE, PROFILE_FILE

Reason = Literal["superseded runs", "superseded verdicts", "orphaned verdicts", "unfinished files", "unreadable files"]

UNFINISHED_SECONDS = 600
"""How old a file is that nobody writes any more: writing one takes milliseconds."""

Unread = Literal["missing", "broken", "unknown"]
"""Why there is no record: `broken` is one of no version, `unknown` one of a newer version, or not to be read now."""

R = TypeVar("R", RunArtifact, Evaluation)

_VERDICT_KINDS: tuple[Kind, ...] = ("judge", "prompt", "summary")


@dataclass(frozen=True, slots=True)
class Waste:
    """Files that go together, as paths relative to the output folder."""

    reason: Reason
    paths: tuple[str, ...]


def is_session_running(output: Path) -> bool:
    """Return whether a session is making runs in the output folder."""
    return is_claimed(str(output))


def find_waste(contents: Contents, *, unreadable: bool = False) -> Iterator[Waste]:
    """Yield all waste of an output folder, runs before verdicts.

    A displaced run or verdict is superseded unless the document in its place is broken, is an error or was replayed
    from a cassette, or a session has used the displaced one since. A verdict is orphaned if its run is not kept.
    Unreadable files are waste only if `unreadable`; documents of newer versions never are.
    """
    for folder in contents.runs():
        yield from _RunFolder(contents, folder, unreadable).find_waste()
    for folder in contents.evaluations():
        yield from _EvaluationFolder(contents, folder, unreadable).find_waste()
    for path in contents.unfinished_files():
        if _is_old(contents, path):
            yield Waste("unfinished files", (path,))


def remove_waste(output: Path, waste: Waste) -> None:
    """Remove waste, and the folders that it leaves empty, while no session writes. Raises InfrastructureError."""
    for path in waste.paths:
        try:
            # One by one: a session that writes meanwhile waits for milliseconds, not for all of it.
            open_documents(output).remove(path)
            if (folder := (output / path).parent).name == OUTPUTS:
                with contextlib.suppress(OSError):  # it holds more
                    folder.parent.rmdir()
        except OSError as error:
            raise InfrastructureError(f"{output / path}: cannot be removed: {error.strerror or error}") from error


class _RunFolder:
    """A folder of runs and the waste in it."""

    def __init__(self, contents: Contents, folder: Folder, unreadable: bool) -> None:
        self.contents, self.folder, self.unreadable = contents, folder, unreadable

    def find_waste(self) -> Iterator[Waste]:
        for name, (kind, _, displaced) in self.folder.files.items():
            if kind == "run" and displaced is not None and self.is_superseded(name):
                yield Waste("superseded runs", self._paths_with_input(name) + self._list_kept(name))
            elif kind == "run" and self.unreadable and self.run(name) == "broken":
                yield Waste("unreadable files", self._paths_with_input(name))
            elif kind == "unreadable" and self.unreadable:
                yield Waste("unreadable files", (self._path(name),))
            elif kind == "input" and not self.folder.beside(name, "run") and self._is_old(name):
                yield Waste("unfinished files", (self._path(name),))
            elif kind == "artifacts":
                yield from self._find_unnamed(name)

    def kept(self, repetition: int) -> Iterator[str]:
        """Yield the files of a repetition's runs that are no waste."""
        for name in self.folder.repetitions.get(repetition, ()):
            kind, _, displaced = self.folder.files[name]
            if kind == "run" and (displaced is None or not self.is_superseded(name)):
                yield name

    def is_superseded(self, name: str) -> bool:
        """Return whether a displaced run has another one in its place that makes it useless."""
        if self.contents.is_in_use(self.folder, name):
            return False
        run, newer = self.run(name), self.run(f"run_{self.folder.files[name].repetition}.json")
        if not isinstance(run, RunArtifact) or not isinstance(newer, RunArtifact) or _is_replay_of_paid(newer, run):
            return False
        # A provider error supersedes nothing. A failed run of the same fingerprint is a retry of the older one.
        return newer.status == "success" or (newer.status != "provider_error" and newer.fingerprint != run.fingerprint)

    def run(self, name: str) -> RunArtifact | Unread:
        return _read_record(parse_run, self.contents, self._path(name))

    def _is_old(self, name: str) -> bool:
        return _is_old(self.contents, self._path(name))

    def holds_run_of(self, name: str, evaluation: Evaluation) -> bool:
        """Return whether the verdict is on the run in this file.

        True also for a run that cannot be read now, and for a broken one that is kept: it may be the verdict's.
        """
        with contextlib.suppress(OSError):
            # A trace may have megabytes, so look for the run_id in the JSON text
            content = self.contents.documents.read(self._path(name)) or b""
            if f'"run_id":{json.dumps(evaluation.run_id)}'.encode() in content:
                return True  # without parsing it
        run = self.run(name)
        if isinstance(run, RunArtifact):
            return is_verdict_on(evaluation, run)
        return run == "unknown" or (run == "broken" and not self.unreadable)

    def _find_unnamed(self, artifacts: str) -> Iterator[Waste]:
        """Yield artifacts of a session that died before it wrote the run."""
        alike = self.folder.repetitions[self.folder.files[artifacts].repetition]
        runs = [self.run(name) for name in alike if self.folder.files[name].kind == "run"]
        # A run that cannot be read may name any of these files.
        if "broken" in runs or "unknown" in runs or self._file(artifacts).is_symlink():
            return
        named_paths = {path for run in runs if isinstance(run, RunArtifact) for path in list_kept_files(run)}
        folder = self._file(artifacts)
        files = sorted(folder.glob("workspace.*.tar"))
        if not (folder / OUTPUTS).is_symlink():
            files += sorted(folder.glob(f"{OUTPUTS}/*.*.*"))
        for file in files:
            path = self._path(f"{artifacts}/{file.relative_to(folder).as_posix()}")
            if path not in named_paths and _is_old(self.contents, path):
                yield Waste("unfinished files", (path,))

    def _list_kept(self, name: str) -> tuple[str, ...]:
        """Return the artifacts in the run's own artifacts folder: a run from elsewhere may name any file."""
        run = self.run(name)
        own = self._path(f"run_{self.folder.files[name].repetition}")
        folder = self.contents.output / f"{own}.artifacts"
        if not isinstance(run, RunArtifact) or folder.is_symlink() or (folder / OUTPUTS).is_symlink():
            return ()
        beside = [path for path in list_kept_files(run) if is_beside(own, path)]
        return tuple(path for path in beside if find_whole_file(self.contents.output, path))

    def _paths_with_input(self, name: str) -> tuple[str, ...]:
        return tuple(map(self._path, [name, *self.folder.beside(name, "input")]))

    def _path(self, name: str) -> str:
        return f"{self.folder.path}/{name}"

    def _file(self, name: str) -> Path:
        return self.contents.output / self.folder.path / name


class _EvaluationFolder:
    """A folder of evaluations and the waste in it."""

    def __init__(self, contents: Contents, folder: Folder, unreadable: bool) -> None:
        self.contents, self.folder, self.unreadable = contents, folder, unreadable

    def find_waste(self) -> Iterator[Waste]:
        for name, (kind, _, displaced) in self.folder.files.items():
            if kind == "result":
                verdict = self._verdict(name)
                if displaced is not None and self._is_superseded(name, verdict):
                    yield Waste("superseded verdicts", self._paths_with_judges(name))
                elif isinstance(verdict, Evaluation) and not self._has_run(name, verdict):
                    reason: Reason = "orphaned verdicts" if displaced is None else "superseded verdicts"
                    yield Waste(reason, self._paths_with_judges(name))
                elif verdict == "broken" and self.unreadable:
                    yield Waste("unreadable files", self._paths_with_judges(name))
            elif kind == "unreadable" and self.unreadable:
                yield Waste("unreadable files", (f"{self.folder.path}/{name}",))
            elif kind in _VERDICT_KINDS and not self.folder.beside(name, "result") and self._is_old(name):
                yield Waste("unfinished files", (f"{self.folder.path}/{name}",))

    def _is_superseded(self, name: str, verdict: object) -> bool:
        """Return whether the run that the verdict is on has another verdict in its place."""
        if self.contents.is_in_use(self.folder, name):
            return False
        newer = self._verdict(f"final_result_{self.folder.files[name].repetition}.json")
        if (
            not isinstance(verdict, Evaluation)
            or not isinstance(newer, Evaluation)
            or _is_replay_of_paid(newer, verdict)
        ):
            return False
        return newer.outcome != "error" and newer.run_fingerprint == verdict.run_fingerprint

    def _has_run(self, name: str, evaluation: Evaluation) -> bool:
        repetition = self.folder.files[name].repetition
        return any(runs.holds_run_of(run, evaluation) for runs in self._runs for run in runs.kept(repetition))

    @cached_property
    def _runs(self) -> list[_RunFolder]:
        folders = map(self.contents.folder, self.contents.run_folders(self.folder))
        return [_RunFolder(self.contents, folder, self.unreadable) for folder in folders if folder.files]

    def _verdict(self, name: str) -> Evaluation | Unread:
        return _read_record(parse_evaluation, self.contents, f"{self.folder.path}/{name}")

    def _is_old(self, name: str) -> bool:
        return _is_old(self.contents, f"{self.folder.path}/{name}")

    def _paths_with_judges(self, name: str) -> tuple[str, ...]:
        """Return the files of a verdict, the verdict first: the others are useless without it."""
        return tuple(f"{self.folder.path}/{each}" for each in (name, *self.folder.beside(name, *_VERDICT_KINDS)))


def _is_replay_of_paid(newer: RunArtifact | Evaluation, older: RunArtifact | Evaluation) -> bool:
    """Return whether the newer document was replayed from a cassette and displaced a paid one."""
    return newer.cassette == "replayed" != older.cassette


def _read_record(parse: Callable[[str, bytes], R], contents: Contents, path: str) -> R | Unread:
    try:
        content = contents.documents.read(path)
        if content is None:
            return "missing"
        return parse(f"{contents.output}/{path}", content)
    except ValidationError:
        return "broken"
    # Documents of a newer version, and those hidden by a permission or a bad disk, are kept even with --unreadable
    except (OSError, ValueError, InfrastructureError):
        return "unknown"


def _is_old(contents: Contents, path: str) -> bool:
    modified = contents.documents.modified(path)
    return modified is not None and time.time() - modified / 1e9 > UNFINISHED_SECONDS


class Verification:
    """A check of a whole output folder. `counts` contains the number of checked documents by kind."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.counts: Counter[str] = Counter(dict.fromkeys(("runs", "workspaces", "verdicts", "votes"), 0))

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each problem, which begins with the file's path."""
        if (damage := self.contents.documents.find_damage()) is not None:
            output = self.contents.output
            yield f"{output / DATABASE}: is damaged ({damage}); run `agentbench store repair --output {output}`"
        for profile in self.contents.profiles():
            yield from self._verify_profile(profile)
        for folder in self.contents.runs():
            for name, (kind, _, _) in folder.files.items():
                if kind == "run":
                    yield from self._verify_run(folder, name)
                self.counts["files that could not be read, kept aside"] += kind == "unreadable"
        for folder in self.contents.evaluations():
            for name, (kind, _, _) in folder.files.items():
                if kind == "result":
                    yield from self._verify_evaluation(folder, name)
                elif kind == "judge":
                    yield from self._verify_judge(folder, name)
                self.counts["files that could not be read, kept aside"] += kind == "unreadable"
        for vote in self.contents.votes():
            yield from self._verify_vote(vote)

    def _verify_profile(self, folder: str) -> Iterator[str]:
        path = self.contents.output / folder / PROFILE_FILE
        try:
            content = self.contents.documents.read(f"{folder}/{PROFILE_FILE}")
            if content is None:
                return  # written with the first run
            profile = json.loads(content)
            full, covered = profile["fingerprint"], canonical_json(profile["input"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            yield f"{path}: cannot be read: {error}"
            return
        if not str(full).startswith(folder.rpartition("_")[2]):
            yield f"{path}: found fingerprint {full!r}, expected the one that the folder is named by"
        elif not self._covers(covered, full):
            yield f"{path}: found an input of another fingerprint than {full!r}"

    def _verify_run(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        self.counts["runs"] += 1
        try:
            run = load_run(self.contents.output, f"{folder.path}/{name}")
        except InfrastructureError as error:
            yield str(error)
            return
        yield from _find_misplaced(path, folder, name, run.case_id, run.fingerprint)
        if run.repetition != folder.files[name].repetition:
            yield f"{path}: found repetition {run.repetition}, expected the one in the file's name"
        yield from self._verify_input(folder, folder.beside(name, "input"), run)
        self.counts["workspaces"] += run.workspace is not None
        for kept_path in list_kept_files(run):
            if find_whole_file(self.contents.output, kept_path) is None:
                field = "workspace" if kept_path == run.workspace else "output_artifacts"
                yield f"{path}: {field}: found {kept_path!r}, which is missing or damaged"

    def _verify_input(self, folder: Folder, names: list[str], run: RunArtifact) -> Iterator[str]:
        self.counts["runs without fingerprint_input.json"] += not names
        for name in names:
            path = self.contents.output / folder.path / name
            try:
                covered = self._read(f"{folder.path}/{name}")
                json.loads(covered)
            except (OSError, ValueError, RecursionError) as error:
                yield f"{path}: cannot be read: {error}"
                continue
            if run.fingerprint is not None and not self._covers(covered, run.fingerprint):
                yield f"{path}: found an input of another fingerprint than the run's, {run.fingerprint}"

    def _verify_evaluation(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        self.counts["verdicts"] += 1
        try:
            evaluation = load_evaluation(self.contents.output, f"{folder.path}/{name}")
        except InfrastructureError as error:
            yield str(error)
            return
        yield from _find_misplaced(path, folder, name, evaluation.case_id, evaluation.fingerprint)

    def _verify_judge(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        try:
            JudgeResult.model_validate_json(self._read(f"{folder.path}/{name}"))
        except (OSError, ValidationError) as error:
            yield f"{path}: cannot be read: {_describe_error(error)}"

    def _verify_vote(self, name: str) -> Iterator[str]:
        self.counts["votes"] += 1
        path = self.contents.output / name
        try:
            vote = StoredVerdict.model_validate_json(strip_signature(self._read(name)))
        except (OSError, ValidationError) as error:
            yield f"{path}: cannot be read: {_describe_error(error)}"
            return
        if vote.key != path.stem:
            yield f"{path}: key: found {vote.key!r}, expected the file's name"

    def _read(self, path: str) -> bytes:
        content = self.contents.documents.read(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.contents.output / path))
        return content

    def _covers(self, covered: bytes, fingerprint: str) -> bool:
        """Return whether the input has the fingerprint. True if secrets were removed from it: it cannot be checked."""
        if hashlib.sha256(covered).hexdigest() == fingerprint:
            return True
        redacted = REDACTED.encode() in covered
        self.counts["inputs without their secrets, which prove nothing"] += redacted
        return redacted


def _find_misplaced(path: Path, folder: Folder, name: str, case_id: str, fingerprint: str | None) -> Iterator[str]:
    """Yield a sentence for a document that was copied into a folder or to a name of another one."""
    # The folder's name is made from the case id before redaction
    if folder.parts[-1] != slug(case_id) and REDACTED not in case_id:
        yield f"{path}: case_id: found {case_id!r}, expected the case that the folder is named by"
    displaced = folder.files[name].displaced
    if displaced is not None and not (fingerprint or "").startswith(displaced):
        yield f"{path}: fingerprint: found {fingerprint!r}, expected the one that the file is named by"


def _describe_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)
