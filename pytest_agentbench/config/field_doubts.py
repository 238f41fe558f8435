"""Request fields in files that no endpoint is known to take: sent all the same, and told with their places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.documents import Loc, read_document
from pytest_agentbench.config.profiles import EvaluationProfile, ModelsFile, RunProfile, SuiteFile, SuiteModel
from pytest_agentbench.config.request_fields import REQUEST_FIELDS, find_unknown_fields
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.extensions import installed_names
from pytest_agentbench.records.case import RunnerSpec

Doubts = Iterable[tuple[Loc, str]]
_PROBE = "llm_probe"
_OF_LAYERS = frozenset({*RunnerSettings.model_fields, "type"})
_OF_JUDGES = frozenset({"timeout_seconds", "retries"})


def place_doubts(file: ConfigFile) -> list[str]:
    """Return the doubts about a file that was read from somewhere, as `file:line:column: field: text`."""
    if file.origin is None or file.origin.path is None:
        return []
    found = [
        ((*loc, *at), text)
        for loc, fields, ours in _list_fields(file)
        if not fields.keys() <= REQUEST_FIELDS
        for at, text in find_unknown_fields(fields, ours)
    ]
    return [placed for placed, _ in locate_doubts(file.origin.path, found)] if found else []


def find_runner_doubts(runner: RunnerSpec) -> Doubts:
    """Yield the doubts about a case's runner. One that a conftest adds may have settings of its own."""
    fields = runner.overrides
    if not fields:
        return
    is_known = runner.type == _PROBE or runner.type in installed_names("runner")
    for at, text in find_unknown_fields(fields, _OF_LAYERS, only_misspelt=not is_known):
        yield ("runner", *at), text


def locate_doubts(path: Path, found: Doubts) -> Iterator[tuple[str, str]]:
    """Yield each doubt as `file:line:column: field: text`, and without its place."""
    document = read_document(path)
    for loc, text in found:
        problem = document.problem(loc, text, at_key=True)
        yield f"{path}:{problem.line}:{problem.column}: {problem.message}", problem.message


def _list_fields(file: ConfigFile) -> Iterator[tuple[Loc, Mapping[str, Any], Collection[str]]]:
    """Yield the places of a file where request fields stand, with what else is read there."""
    if isinstance(file, RunProfile):
        yield ("runner_defaults",), file.runner_defaults, _OF_LAYERS
        for name, layer in file.model_overrides.items():
            yield ("model_overrides", name), layer, _OF_LAYERS
    elif isinstance(file, SuiteFile | ModelsFile):
        for index, model in enumerate(file.models):
            at: Loc = ("models", index)
            yield (*at, "parameters"), model.parameters, ()
            if isinstance(model, SuiteModel):
                yield at, model.request_fields, ()
                yield (*at, "primary_params"), model.primary_params, ()
    elif isinstance(file, EvaluationProfile):
        for index, judge in enumerate(file.judges):
            if judge.type == _PROBE:  # others have options of their own
                yield ("judges", index), judge.model_extra or {}, _OF_JUDGES
                yield ("judges", index, "request_options"), judge.request_options, _OF_JUDGES
