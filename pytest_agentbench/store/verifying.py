"""Whether everything in an output folder can be read and is what it says it is."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from pytest_agentbench.bounded import read_file
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records import JudgeResult, RunArtifact
from pytest_agentbench.store.archives import kept_files, whole_file
from pytest_agentbench.store.artifacts import PROFILE_FILE
from pytest_agentbench.store.contents import Contents, Folder
from pytest_agentbench.store.fingerprints import canonical_json
from pytest_agentbench.store.judgements import StoredVerdict
from pytest_agentbench.store.layout import slug
from pytest_agentbench.store.reading import load_evaluation, load_run
from pytest_agentbench.store.redaction import REDACTED
from pytest_agentbench.store.signing import unsigned


class Verification:
    """Goes through an output folder once. `counts` says how much of what kind there was."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.counts: Counter[str] = Counter(dict.fromkeys(("runs", "workspaces", "verdicts", "votes"), 0))

    def problems(self) -> Iterator[str]:
        """A sentence for each, which begins with the file's path."""
        for profile in self.contents.profiles():
            yield from self._profile(profile)
        for folder in self.contents.runs():
            for name, (kind, _, _) in folder.files.items():
                if kind == "run":
                    yield from self._run(folder, name)
                self.counts["files that could not be read, kept aside"] += kind == "unreadable"
        for folder in self.contents.evaluations():
            for name, (kind, _, _) in folder.files.items():
                if kind == "result":
                    yield from self._evaluation(folder, name)
                elif kind == "judge":
                    yield from self._judge(folder, name)
                self.counts["files that could not be read, kept aside"] += kind == "unreadable"
        for vote in self.contents.votes():
            yield from self._vote(self.contents.output / vote)

    def _profile(self, folder: str) -> Iterator[str]:
        path = self.contents.output / folder / PROFILE_FILE
        if not path.exists():
            return  # written with the first run
        try:
            found = json.loads(read_file(path))
            full, covered = found["fingerprint"], canonical_json(found["input"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            yield f"{path}: cannot be read: {error}"
            return
        if not str(full).startswith(folder.rpartition("_")[2]):
            yield f"{path}: found fingerprint {full!r}, expected the one that the folder is named by"
        elif not self._covers(covered, full):
            yield f"{path}: found an input of another fingerprint than {full!r}"

    def _run(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        self.counts["runs"] += 1
        try:
            run = load_run(path)
        except InfrastructureError as error:
            yield str(error)
            return
        yield from _misplaced(path, folder, name, run.case_id, run.fingerprint)
        if run.repetition != folder.files[name].repetition:
            yield f"{path}: found repetition {run.repetition}, expected the one in the file's name"
        yield from self._input(path.parent, folder.beside(name, "input"), run)
        self.counts["workspaces"] += run.workspace is not None
        for kept in kept_files(run):
            if whole_file(self.contents.output, kept) is None:
                field = "workspace" if kept == run.workspace else "output_artifacts"
                yield f"{path}: {field}: found {kept!r}, which is missing or damaged"

    def _input(self, folder: Path, names: list[str], run: RunArtifact) -> Iterator[str]:
        self.counts["runs without fingerprint_input.json"] += not names
        for name in names:
            path = folder / name
            try:
                covered = read_file(path)
                json.loads(covered)
            except (OSError, ValueError, RecursionError) as error:
                yield f"{path}: cannot be read: {error}"
                continue
            if run.fingerprint is not None and not self._covers(covered, run.fingerprint):
                yield f"{path}: found an input of another fingerprint than the run's, {run.fingerprint}"

    def _evaluation(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        self.counts["verdicts"] += 1
        try:
            evaluation = load_evaluation(path)
        except InfrastructureError as error:
            yield str(error)
            return
        yield from _misplaced(path, folder, name, evaluation.case_id, evaluation.fingerprint)

    def _judge(self, folder: Folder, name: str) -> Iterator[str]:
        path = self.contents.output / folder.path / name
        try:
            JudgeResult.model_validate_json(read_file(path))
        except (OSError, ValidationError) as error:
            yield f"{path}: cannot be read: {_short(error)}"

    def _vote(self, path: Path) -> Iterator[str]:
        self.counts["votes"] += 1
        try:
            vote = StoredVerdict.model_validate_json(unsigned(read_file(path)))
        except (OSError, ValidationError) as error:
            yield f"{path}: cannot be read: {_short(error)}"
            return
        if vote.key != path.stem:
            yield f"{path}: key: found {vote.key!r}, expected the file's name"

    def _covers(self, covered: bytes, fingerprint: str) -> bool:
        """Whether the input is the fingerprint's; nobody can tell where secrets were removed from it."""
        if hashlib.sha256(covered).hexdigest() == fingerprint:
            return True
        redacted = REDACTED.encode() in covered
        self.counts["inputs without their secrets, which prove nothing"] += redacted
        return redacted


def _misplaced(path: Path, folder: Folder, name: str, case_id: str, fingerprint: str | None) -> Iterator[str]:
    """What was copied to where it does not belong."""
    if folder.parts[-1] != slug(case_id) and REDACTED not in case_id:
        yield f"{path}: case_id: found {case_id!r}, expected the case that the folder is named by"
    aside = folder.files[name].aside
    if aside is not None and not (fingerprint or "").startswith(aside):
        yield f"{path}: fingerprint: found {fingerprint!r}, expected the one that the file is named by"


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)
