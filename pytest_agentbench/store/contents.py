"""Walk the documents of an output folder, and sum up the usage of its runs."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import make_read_error
from pytest_agentbench.store.output_folder import (
    DATABASE,
    EVALUATION_LEVELS,
    EVALUATIONS,
    JUDGEMENTS,
    RUN_LEVELS,
    RUNS,
    refuse_links,
)

Kind = Literal["run", "input", "artifacts", "result", "judge", "prompt", "summary", "unreadable"]

_NAME = re.compile(r"(run|judge|final_result|summary)_([1-9][0-9]{0,8})(?:\.([0-9a-f]{8,64}))?\.(.+)")
_KINDS: dict[tuple[str, str], Kind] = {
    ("run", "json"): "run",
    ("run", "fingerprint_input.json"): "input",
    ("run", "artifacts"): "artifacts",
    ("final_result", "json"): "result",
    ("judge", "json"): "judge",
    ("judge", "prompt.user.json"): "prompt",
    ("summary", "md"): "summary",
}
_VOTE = re.compile(r"[^.].*\.json")
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}-[0-9]+-[0-9]+\.tmp|\..+\.json\.[0-9a-f]{8}")


class Name(NamedTuple):
    """The parsed name of a file. `displaced` are digits of its fingerprint where another file has taken its place."""

    kind: Kind
    repetition: int
    displaced: str | None


def parse_name(name: str) -> Name | None:
    """Return the kind of a file in a case's folder by its name, or None for files of others."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    what, repetition, displaced, suffix = match.groups()
    kind = _KINDS.get((what, suffix))
    if suffix.endswith(".unreadable"):
        kind = "unreadable"
    if kind is None:
        return None
    return Name(kind, int(repetition), displaced)


@dataclass(frozen=True)
class Folder:
    """The folder of one case: its path relative to the output folder, and the files in it that the store writes."""

    path: str
    files: dict[str, Name]

    @cached_property
    def repetitions(self) -> dict[int, list[str]]:
        """Return the files of each repetition."""
        files: dict[int, list[str]] = defaultdict(list)
        for name, (_, repetition, _) in self.files.items():
            files[repetition].append(name)
        return files

    @property
    def parts(self) -> list[str]:
        """Return the path's names: `runs` or `evaluations`, suite, run profile, [evaluation profile,] model, case."""
        return self.path.split("/")

    def beside(self, file: str, *kinds: Kind) -> list[str]:
        """Return the other files of a file's repetition that were made with it, of some kinds."""
        _, repetition, displaced = self.files[file]
        alike = [name for name in self.repetitions[repetition] if self.files[name].displaced == displaced]
        return [name for name in alike if self.files[name].kind in kinds]


class Contents:
    """An output folder to look through: no folder below it is a link.

    Everything raises InfrastructureError for a folder that cannot be read.
    """

    def __init__(self, output: Path) -> None:
        """Raise ConfigError for a folder in which no session has written, or with links in it."""
        refuse_links(output)
        self.output = output
        self.documents = open_documents(output)
        self._profiles: dict[str, list[str]] = {}
        if not is_output(output):
            raise ConfigError(
                f"{output}: found neither {DATABASE} nor a folder {RUNS}, expected an output folder of sessions"
            )

    def runs(self) -> Iterator[Folder]:
        """Return the folders of cases that were run."""
        return self._case_folders(RUNS, RUN_LEVELS)

    def evaluations(self) -> Iterator[Folder]:
        """Return the folders of cases that were evaluated."""
        return self._case_folders(EVALUATIONS, EVALUATION_LEVELS)

    def profiles(self) -> Iterator[str]:
        """Yield the folders of run profiles and evaluation profiles, relative to the output folder."""
        yield from self._walk_folders(RUNS, 2)
        yield from self._walk_folders(EVALUATIONS, 3)

    def votes(self) -> Iterator[str]:
        """Yield the stored votes of metrics that ask a model, relative to the output folder."""
        for folder in self._walk_folders(JUDGEMENTS, 1):
            yield from (f"{folder}/{name}" for name in self._list_names(folder) if _VOTE.fullmatch(name))

    def evaluation_folders(self, runs: Folder) -> list[str]:
        """Return the folders that may have verdicts on the runs of a folder: one per evaluation profile and suite."""
        _, _, profile, model, case = runs.parts
        return [f"{folder}/{model}/{case}" for folder in self._evaluation_profiles(profile.removeprefix("run_"))]

    def run_folders(self, evaluations: Folder) -> list[str]:
        """Return the folders that may have the runs of a folder's verdicts, its own suite first."""
        _, own, profile, _, model, case = evaluations.parts
        run_profile = f"run_{profile.removeprefix('evaluation_')}"
        # Its own suite first: the run that a verdict was made with is most likely there
        suites = sorted(self._suites, key=lambda suite: suite != own)
        return [f"{RUNS}/{suite}/{run_profile}/{model}/{case}" for suite in suites]

    def unfinished_files(self) -> Iterator[str]:
        """Yield the files that were not finished, by a session that died or that is writing."""
        yield from (name for name in sorted(os.listdir(self.output)) if _TEMPORARY.fullmatch(name))
        for root in (RUNS, EVALUATIONS, JUDGEMENTS):
            for folder, _, files in os.walk(self.output / root):
                below = os.path.relpath(folder, self.output).replace(os.sep, "/")
                yield from (f"{below}/{name}" for name in sorted(files) if _TEMPORARY.fullmatch(name))

    def is_in_use(self, folder: Folder, name: str) -> bool:
        """Return whether a run or verdict is in its place, or a session has come back to it since it was displaced."""
        displaced = folder.files[name].displaced
        if displaced is None:
            return True
        path = f"{folder.path}/{name}"
        # Finding a displaced one touches it (`mark_in_use`), so it is younger than the one that displaced it.
        touched, newer = map(self.documents.modified, (path, path.replace(f".{displaced}.json", ".json")))
        return touched is None or newer is None or touched > newer

    def _case_folders(self, root: str, levels: int) -> Iterator[Folder]:
        for path in self._walk_folders(root, levels):
            yield self.folder(path)

    def folder(self, path: str) -> Folder:
        """Return the folder of a case. It has no files if it does not exist."""
        return Folder(path, {name: known for name in self._list_names(path) if (known := parse_name(name)) is not None})

    def _walk_folders(self, folder: str, levels: int) -> Iterator[str]:
        if levels == 0:
            yield folder
            return
        for name in self._list_folders(folder):
            yield from self._walk_folders(f"{folder}/{name}", levels - 1)

    def _list_folders(self, folder: str) -> list[str]:
        try:
            return self.documents.folders(folder)
        except OSError as error:
            raise make_read_error(f"{self.output}/{folder}", error) from error

    def _list_names(self, folder: str) -> list[str]:
        try:
            return self.documents.names(folder)
        except OSError as error:
            raise make_read_error(f"{self.output}/{folder}", error) from error

    @cached_property
    def _suites(self) -> list[str]:
        return self._list_folders(RUNS)

    def _evaluation_profiles(self, profile: str) -> list[str]:
        """Return all folders of evaluation profiles of one run profile, which differ in suite too."""
        if profile not in self._profiles:
            suites = self._list_folders(EVALUATIONS)
            folders = [f"{EVALUATIONS}/{suite}/evaluation_{profile}" for suite in suites]
            self._profiles[profile] = [f"{each}/{name}" for each in folders for name in self._list_folders(each)]
        return self._profiles[profile]


def is_verdict_on(evaluation: Evaluation, artifact: RunArtifact) -> bool:
    """Return whether a verdict is on this run, not on another run of the same fingerprint."""
    return evaluation.run_id == artifact.run_id


def is_output(output: Path) -> bool:
    """Return whether sessions have written into the folder."""
    return open_documents(output).exist or any((output / name).is_dir() for name in (RUNS, EVALUATIONS))


@dataclass(frozen=True)
class History:
    """Usages by the folder name of the case, `slug(case_id)`."""

    runs: Mapping[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))
    verdicts: Mapping[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))


def read_history(output: str, model: str, evaluation_profile_id: str) -> History:
    """Return the usage of the model with the folder name `model`, under any run profile and suite, displaced runs
    included.

    Verdicts count if the evaluation profile asked a model for them. Unreadable documents and runs that ended in a
    provider error are ignored. Reads every document of the model once.
    """
    history = History()
    if not is_output(Path(output)):
        return history
    contents = Contents(Path(output))
    for folder, path in _list_documents(contents.runs(), model, "run"):
        if (run := _read_document(contents, path)).get("status") != "provider_error":
            used = list(_list_run_usages(run))
            _append_usage(history.runs, folder, reduce(add, used) if used else None)
    profile = re.compile(rf"eval_profile_{re.escape(slug(evaluation_profile_id))}_[0-9a-f]+")
    for folder, path in _list_documents(contents.evaluations(), model, "result"):
        if profile.fullmatch(folder.parts[3]):
            used = list(_list_judge_usages(_read_document(contents, path)))
            _append_usage(history.verdicts, folder, reduce(add, used) if used else None)
    return history


def _list_documents(folders: Iterator[Folder], model: str, wanted_kind: Kind) -> Iterator[tuple[Folder, str]]:
    """Yield the paths of a model's documents of a kind, with their folders."""
    for folder in folders:
        if folder.parts[-2] == model:
            yield from (
                (folder, f"{folder.path}/{name}") for name, (kind, _, _) in folder.files.items() if kind == wanted_kind
            )


def _append_usage(usages: Mapping[str, list[Usage]], folder: Folder, usage: Usage | None) -> None:
    if usage is not None:
        usages[folder.parts[-1]].append(usage)


def _read_document(contents: Contents, path: str) -> dict[str, Any]:
    try:
        document = json.loads(contents.documents.read(path) or b"null")
    except (OSError, ValueError, RecursionError):
        return {}
    if isinstance(document, dict):
        return document
    return {}


def _list_run_usages(run: dict[str, Any]) -> Iterator[Usage]:
    """Yield the usage of the run's own model and of its roles."""
    roles = run.get("roles")
    for part in (run, *(roles.values() if isinstance(roles, dict) else ())):
        if isinstance(part, dict) and (usage := _parse_usage(part.get("usage"))) is not None:
            yield usage


def _list_judge_usages(evaluation: dict[str, Any]) -> Iterator[Usage]:
    """Yield the usage of the judge and of each metric that asks a model."""
    judge, metrics = evaluation.get("judge"), evaluation.get("metrics")
    parts = [judge, {"usage": evaluation.get("judge_usage")}, *(metrics if isinstance(metrics, list) else ())]
    for part in parts:
        if isinstance(part, dict) and (usage := _parse_usage(part.get("usage"))) is not None:
            yield usage


def _parse_usage(value: object) -> Usage | None:
    try:
        if value is None:
            return None
        return Usage.model_validate(value)
    except ValidationError:
        return None
