"""promptfooconfig.yaml as drafts: one for each prompt, test and combination of its variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.json_files import lies_deep
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import MAX_DEPTH, Draft, FileContents, Place
from pytest_agentbench.packs.importers.promptfoo_assertions import (
    Criteria,
    UnmappedError,
    add_assertion,
    parse_assertion,
)
from pytest_agentbench.packs.importers.promptfoo_prompts import (
    Prompt,
    TemplateError,
    fill_template,
    read_prompts,
    resolve_variables,
)
from pytest_agentbench.packs.importers.promptfoo_results import list_answered_tests, read_results
from pytest_agentbench.packs.importers.promptfoo_tests import list_combinations, merge_variables, read_tests
from pytest_agentbench.packs.importers.promptfoo_values import (
    BadReferenceError,
    PlacedValue,
    find_named_file,
    is_reference,
    read_file_data,
    read_file_value,
)

_READ = {"prompts", "tests", "defaultTest", "scenarios", "assertionTemplates"}
_OF_NO_MATTER = {"description", "$schema", "tags", "metadata", "sharing", "outputPath", "writeLatestResults"}
_HINTS = {
    "providers": "name the model with --model, see docs/models.md",
    "targets": "name the model with --model, see docs/models.md",
    "redteam": "attacks are not generated here",
    "env": "set the variables where pytest runs",
}
_OF_A_TEST = {"vars", "assert", "options", "threshold", "metadata", "description", "prompts", "providerOutput"}
_SET = "assert-set"


@dataclass(frozen=True)
class _Config:
    top: PlacedValue
    folder: Path
    prompts: tuple[Prompt, ...]
    default: PlacedValue


def read(path: Path) -> FileContents:
    """Return the tests of a config. Raises ConfigError if the file cannot be read."""
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ConfigError(f"{path}: expected promptfooconfig.yaml (or .json); a config that is code is not run")
    if path.suffix == ".json" and (results := read_results(path)) is not None:
        return _add_results(results, path)
    spot = read_file_value(path)
    if not isinstance(spot.value, dict):
        raise ConfigError(f"{path}:1:1: found {spot.value!r:.40}, expected a mapping with prompts and tests")
    gathered = FileContents()
    for name in sorted(spot.value.keys() - _READ - _OF_NO_MATTER):
        gathered.note(spot.below(name).where, f"left out; {_HINTS.get(name, 'it has no counterpart')}")
    default = _read_default(spot, path.parent, gathered)
    config = _Config(spot, path.parent, tuple(read_prompts(spot, path.parent, gathered)), default)
    for number, test in enumerate(read_tests(spot, path.parent, gathered), 1):
        _add_drafts(test, f"test-{number}", config, gathered)
    return gathered


def _add_results(results: list[PlacedValue], path: Path) -> FileContents:
    """Return the tests of a file of results, with the answers that one provider gave."""
    gathered = FileContents()
    nothing = PlacedValue({}, (), lambda _: Place(str(path)))
    for result in list_answered_tests(results, gathered):
        config = _Config(nothing, path.parent, (result.prompt,), nothing)
        _note_left_out(result.test, gathered)
        try:
            _add_draft(result.test, result.name, result.prompt, result.test.value["vars"], config, gathered)
        except TemplateError as error:
            gathered.lose(result.test.where, str(error))
    return gathered


def _read_default(config: PlacedValue, folder: Path, gathered: FileContents) -> PlacedValue:
    given = config.below("defaultTest")
    if isinstance(given.value, str) and is_reference(given.value):
        try:
            given = read_file_value(find_named_file(given.value, folder))
        except (BadReferenceError, ConfigError) as error:
            gathered.note(given.where, f"left out: {error}")
            return PlacedValue({}, given.loc, given.locate)
    if isinstance(given.value, dict):
        _note_left_out(given, gathered)
    elif given.value is not None:
        gathered.note(given.where, f"left out: found {given.value!r:.40}, expected an object")
    if isinstance(given.value, dict):
        return given
    return PlacedValue({}, given.loc, given.locate)


def _note_left_out(test: PlacedValue, gathered: FileContents) -> None:
    options = test.below("options")
    for spot, known in (
        (test, _OF_A_TEST),
        (options, {"prefix", "suffix", "disableDefaultAsserts", "disableVarExpansion"}),
    ):
        for name in sorted(spot.value.keys() - known) if isinstance(spot.value, dict) else ():
            gathered.note(spot.below(name).where, "left out; it has no counterpart")
    if test.value.get("threshold") is not None:
        gathered.note(test.below("threshold").where, "left out: every check decides here, not their mean")


def _add_drafts(test: PlacedValue, name: str, config: _Config, gathered: FileContents) -> None:
    """Add the drafts of a test."""
    _note_left_out(test, gathered)
    wanted = test.below("prompts") if test.value.get("prompts") is not None else config.default.below("prompts")
    references = [str(each.value) for each in wanted.each()]
    prompts = [prompt for prompt in config.prompts if not references or any(map(prompt.is_named, references))]
    if not prompts:
        gathered.lose(test.where, "found no prompt for it")
        return
    try:
        merged = merge_variables(test, config.default, config.folder)
        expanded = not _merge_options(test, config).get("disableVarExpansion")
        variables = list_combinations(merged, config.folder, expanded=expanded)
    except (BadReferenceError, TemplateError) as error:
        gathered.lose(test.where, str(error))
        return
    description = test.value.get("description")
    name = description if isinstance(description, str) and description.strip() else name
    several = len(variables) > 1
    for number, values in enumerate(variables, 1):
        for at, prompt in enumerate(prompts, 1):
            suffix = (f"-{number}" if several else "") + (f"-prompt-{at}" if len(prompts) > 1 else "")
            try:
                _add_draft(test, f"{name}{suffix}", prompt, values, config, gathered)
            except TemplateError as error:
                gathered.lose(test.where, f"{name}{suffix}: {error}" if suffix else str(error))


def _add_draft(
    test: PlacedValue, name: str, prompt: Prompt, values: Mapping[str, Any], config: _Config, gathered: FileContents
) -> None:
    """Add the draft of one prompt with one combination of values. Raises TemplateError if it cannot become a case."""
    options = _merge_options(test, config)
    before, after = (str(options.get(key) or "") for key in ("prefix", "suffix"))
    values = resolve_variables(values)
    messages = prompt.asked(values, before, after)
    metadata = {**_object(config.default.value.get("metadata")), **_object(test.value.get("metadata")), "vars": values}
    if lies_deep(metadata, MAX_DEPTH):
        raise TemplateError(f"found more than {MAX_DEPTH} levels of nesting")
    decided, noted = Criteria(), len(gathered.notes)
    alone = _object(test.value.get("options")).get("disableDefaultAsserts")
    default = () if alone else _list_assertions(config.default, gathered)
    for spot in (*default, *_list_assertions(test, gathered)):
        _add_criterion(spot, values, decided, config, gathered)
    # In the case as well: who reads it later has no protocol of the import.
    if left_out := [note.partition(": ")[2] for note in gathered.notes[noted:]]:
        metadata["left_out"] = left_out
    output = test.value.get("providerOutput")
    gathered.drafts.append(
        Draft(
            place=test.place,
            name=name,
            title=name[:80],
            messages=messages,
            reference=decided.reference,
            # Only `factuality` brings a reference, and that asks a model too.
            metric=None if decided.reference is None else {"name": "llm_judgement", "threshold": 1.0},
            checks=tuple(decided.checks),
            expectations=tuple(decided.expectations),
            metadata=metadata,
            answers=(output,) if isinstance(output, str) and output.strip() else (),
        )
    )


def _merge_options(test: PlacedValue, config: _Config) -> dict[str, Any]:
    """Return a test's options over the default ones."""
    return {**_object(config.default.value.get("options")), **_object(test.value.get("options"))}


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


def _list_assertions(test: PlacedValue, gathered: FileContents) -> Iterator[PlacedValue]:
    """Yield the assertions of a test; a set is replaced by its members."""
    for spot in test.below("assert").each():
        if isinstance(spot.value, dict) and spot.value.get("type") == _SET:
            for name in ("threshold", "weight"):
                if spot.value.get(name) is not None:
                    gathered.note(spot.below(name).where, "left out: every check of the set decides here")
            yield from _list_assertions(spot, gathered)
        else:
            yield spot


def _add_criterion(
    spot: PlacedValue, values: Mapping[str, Any], decided: Criteria, config: _Config, gathered: FileContents
) -> None:
    assertion = parse_assertion(spot.value) if isinstance(spot.value, str) else spot.value
    try:
        if isinstance(assertion, dict) and "$ref" in assertion:
            # The assertion's own fields win over its template's.
            assertion = {**_find_template(assertion["$ref"], config.top), **assertion}
        if not isinstance(assertion, dict) or not isinstance(assertion.get("type"), str):
            raise UnmappedError(f"found {assertion!r:.60}, expected an object with a type")
        said = add_assertion(assertion, _fill_value(assertion.get("value"), values, config.folder), decided)
    except (UnmappedError, BadReferenceError, TemplateError) as error:
        gathered.note(spot.where, f"left out: {error}")
    else:
        for text in said:
            gathered.note(spot.where, text)


def _fill_value(value: Any, values: Mapping[str, Any], folder: Path) -> Any:
    """Return the value that an assertion compares with: variables and the contents of files are put in."""
    if isinstance(value, list):
        return [_fill_value(each, values, folder) if isinstance(each, str) else each for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("package:"):
        raise UnmappedError(f"{value} is code, which is not run")
    if is_reference(value):
        return read_file_data(find_named_file(value, folder))
    return fill_template(value, values)


def _find_template(reference: Any, config: PlacedValue) -> dict[str, Any]:
    """Return the template that `#/assertionTemplates/name` names."""
    found: Any = config.value
    for part in str(reference).removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    if not str(reference).startswith("#/") or not isinstance(found, dict):
        raise UnmappedError(f"$ref: {reference!r} names nothing in this file")
    return found
