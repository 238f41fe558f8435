"""Find request fields in files that no known endpoint takes. They are sent, and reported with their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.config.base import ConfigFile
from pytest_agentbench.config.dialects import resolve_dialect
from pytest_agentbench.config.documents import Loc, make_located_error, read_document
from pytest_agentbench.config.model_entries import SuiteModel
from pytest_agentbench.config.profiles import EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.request_fields import REQUEST_FIELDS, find_unknown_fields
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.config.variant_files import FileWithVariants
from pytest_agentbench.extensions import find_extension, installed_names
from pytest_agentbench.records.case import RunnerSpec

_PROBE = "llm_probe"
_OF_LAYERS = frozenset({*RunnerSettings.model_fields, "type"})
_OF_JUDGES = frozenset({"timeout_seconds", "retries"})


def place_doubts(file: ConfigFile) -> list[str]:
    """Return the doubts about a file that was read from somewhere, as `file:line:column: field: text`."""
    if file.origin is None or file.origin.path is None:
        return []
    doubts = [
        ((*loc, *at), text)
        for loc, fields, ours in _list_fields(file)
        if not fields.keys() <= REQUEST_FIELDS
        for at, text in find_unknown_fields(fields, ours)
    ]
    doubts += _list_ineffective(file)
    placed = [text for text, _ in locate_doubts(file.origin.path, doubts)]
    return placed + (list_part_doubts(file) if isinstance(file, FileWithVariants) else [])


def list_part_doubts(file: FileWithVariants) -> list[str]:
    """Return the doubts about plugins that a file and its variants name, each with its place."""
    parts = [fields.parts for fields in file.variants.values()]
    if isinstance(file, RunProfile):
        parts.append(file.parts)
    return [doubt for each in parts if each is not None for doubt in each.doubts]


def list_idle_judges(profile: EvaluationProfile) -> list[str]:
    """Return the doubt about judges that no judge run names, at its place."""
    if not profile.judges or profile.judge_runs or profile.origin is None or profile.origin.path is None:
        return []
    text = "found no judge_runs, so no judge is asked; add judge_runs that name them"
    return [str(make_located_error(profile.origin.path, [(("judges",), text)]))]


def list_runner_doubts(path: Path, runner: RunnerSpec) -> list[tuple[str, str]]:
    """Return the doubts about the runner of a case or dataset, each with its place and without.

    The settings of a conftest's runner are unknown, so they raise no doubt.
    """
    is_known = runner.type == _PROBE or runner.type in installed_names("runner")
    ours = _OF_LAYERS | getattr(find_extension("runner", runner.type), "own_fields", frozenset())
    doubts = find_unknown_fields(runner.overrides, ours, only_misspelt=not is_known)
    return locate_doubts(path, [(("runner", *at), text) for at, text in doubts])


def locate_doubts(path: Path, doubts: Sequence[tuple[Loc, str]]) -> list[tuple[str, str]]:
    """Return the doubts about a file, each with its place and without."""
    if not doubts:
        return []
    document = read_document(path)
    problems = [document.problem(loc, text, at_key=True) for loc, text in doubts]
    return [(f"{path}:{each.line}:{each.column}: {each.message}", each.message) for each in problems]


def _list_ineffective(file: ConfigFile) -> Iterator[tuple[Loc, str]]:
    """Yield request fields of models that the endpoint named in the file ignores."""
    if not isinstance(file, SuiteFile | ModelsFile):
        return
    for index, model in enumerate(file.models):
        if model.parameters and (model.base_url or model.dialect or model.api):
            how = (model.dialect, model.base_url or "", model.dialect_overrides, model.api)
            ignored = resolve_dialect(*how).ignored
            for name in model.parameters.keys() & {*ignored}:
                yield ("models", index, "parameters", name), "has no effect: its endpoint ignores it"


def _list_fields(file: ConfigFile) -> Iterator[tuple[Loc, Mapping[str, Any], Collection[str]]]:
    """Yield the mappings of a file that hold request fields, with the other names that are read there."""
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
            if judge.type == _PROBE:  # options of other judges are unknown here
                yield ("judges", index), judge.model_extra or {}, _OF_JUDGES
                yield ("judges", index, "request_options"), judge.request_options, _OF_JUDGES
