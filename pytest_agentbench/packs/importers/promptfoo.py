"""Read promptfooconfig.yaml as drafts: one for each prompt, test and combination of the test's variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_agentbench.bounded.json_files import lies_deep
from pytest_agentbench.config.variants import MOST_VARIANTS
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import MAX_DEPTH, Draft, FileContents, Place, nonblank_text
from pytest_agentbench.packs.importers.promptfoo_assertions import (
    Criteria,
    UnmappedError,
    add_assertion,
    parse_assertion,
)
from pytest_agentbench.packs.importers.promptfoo_prompts import (
    PROMPT_SLOT,
    Prompt,
    TemplateError,
    fill_template,
    name_prompts,
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
_IGNORED = {"description", "$schema", "tags", "metadata", "sharing", "outputPath", "writeLatestResults"}
_HINTS = {
    "providers": "name the model with --model, see docs/models.md",
    "targets": "name the model with --model, see docs/models.md",
    "redteam": "attacks are not generated here",
    "env": "set the variables where pytest runs",
}
_TEST_FIELDS = {"vars", "assert", "options", "threshold", "metadata", "description", "prompts", "providerOutput"}
_TEST_OPTIONS = {"prefix", "suffix", "disableDefaultAsserts", "disableVarExpansion"}
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
    for name in sorted(spot.value.keys() - _READ - _IGNORED):
        gathered.note(spot.below(name).where, f"left out; {_HINTS.get(name, 'it has no counterpart')}")
    default = _read_default(spot, path.parent, gathered)
    config = _Config(spot, path.parent, tuple(read_prompts(spot, path.parent, gathered)), default)
    for number, test in enumerate(read_tests(spot, path.parent, gathered), 1):
        _add_drafts(test, f"test-{number}", config, gathered)
    return gathered


def _add_results(results: list[PlacedValue], path: Path) -> FileContents:
    """Return the tests of a file of results, with the answers of one provider."""
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
    default = config.below("defaultTest")
    if isinstance(default.value, str) and is_reference(default.value):
        try:
            default = read_file_value(find_named_file(default.value, folder))
        except (BadReferenceError, ConfigError) as error:
            gathered.note(default.where, f"left out: {error}")
            return PlacedValue({}, default.loc, default.locate)
    if isinstance(default.value, dict):
        _note_left_out(default, gathered)
        return default
    if default.value is not None:
        gathered.note(default.where, f"left out: found {default.value!r:.40}, expected an object")
    return PlacedValue({}, default.loc, default.locate)


def _note_left_out(test: PlacedValue, gathered: FileContents) -> None:
    for spot, names in ((test, _TEST_FIELDS), (test.below("options"), _TEST_OPTIONS)):
        for name in sorted(as_object(spot.value).keys() - names):
            gathered.note(spot.below(name).where, "left out; it has no counterpart")
    if test.value.get("threshold") is not None:
        gathered.note(test.below("threshold").where, "left out: every check decides here, not their mean")


def _add_drafts(test: PlacedValue, name: str, config: _Config, gathered: FileContents) -> None:
    """Add the drafts of a test."""
    _note_left_out(test, gathered)
    # A test's own prompts replace the default ones, even by an empty list.
    owner = config.default if test.value.get("prompts") is None else test
    references = [str(spot.value) for spot in owner.below("prompts").each()]
    prompts = [prompt for prompt in config.prompts if not references or any(map(prompt.is_named, references))]
    if not prompts:
        gathered.lose(test.where, "found no prompt for this test")
        return
    try:
        merged = merge_variables(test, config.default, config.folder)
        expanded = not _merge("options", test, config).get("disableVarExpansion")
        variables = list_combinations(merged, config.folder, expanded=expanded)
    except (BadReferenceError, TemplateError) as error:
        gathered.lose(test.where, str(error))
        return
    name = nonblank_text(test.value.get("description")) or name
    for number, values in enumerate(variables, 1):
        if (variants := _find_variants(test, prompts, values, config)) is not None:
            case_name = f"{name}-{number}" if len(variables) > 1 else name
            _add_draft(test, case_name, PROMPT_SLOT, values, config, gathered, variants)
            continue
        for at, prompt in enumerate(prompts, 1):
            # Numbers are part of the name only if a test has several drafts.
            full_name = name
            if len(variables) > 1:
                full_name += f"-{number}"
            if len(prompts) > 1:
                full_name += f"-prompt-{at}"
            try:
                _add_draft(test, full_name, prompt, values, config, gathered)
            except TemplateError as error:
                prefix = "" if full_name == name else f"{full_name}: "
                gathered.lose(test.where, f"{prefix}{error}")


def _find_variants(
    test: PlacedValue, prompts: Sequence[Prompt], values: Mapping[str, Any], config: _Config
) -> dict[str, str] | None:
    """Return the texts of several prompts by the names of variants; None if a case for each prompt is needed."""
    # Answers of promptfoo belong to one prompt each
    if not 1 < len(prompts) <= MOST_VARIANTS or test.value.get("providerOutput") is not None:
        return None
    options = _merge("options", test, config)
    try:
        resolved = resolve_variables(values)
        for key in ("prefix", "suffix"):
            fill_template(str(options.get(key) or ""), resolved)
    except TemplateError:  # the case of each prompt reports it
        return None
    names, variants = name_prompts(config.prompts), dict[str, str]()
    for prompt in prompts:
        text = prompt.as_variant(resolved)
        if text is None or text in variants.values():
            return None
        variants[names[config.prompts.index(prompt)]] = text
    return variants


def _add_draft(
    test: PlacedValue,
    name: str,
    prompt: Prompt,
    values: Mapping[str, Any],
    config: _Config,
    gathered: FileContents,
    variants: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add the draft of one prompt, or of `variants`, with one combination of values.

    Raises TemplateError if it cannot become a case.
    """
    options = _merge("options", test, config)
    before, after = (str(options.get(key) or "") for key in ("prefix", "suffix"))
    values = resolve_variables(values)
    messages = prompt.asked(values, before, after)
    metadata = _merge("metadata", test, config) | {"vars": values}
    if lies_deep(metadata, MAX_DEPTH):
        raise TemplateError(f"found more than {MAX_DEPTH} levels of nesting")
    criteria, noted = Criteria(), len(gathered.notes)
    owners = [config.default, test]
    if as_object(test.value.get("options")).get("disableDefaultAsserts"):
        owners = [test]
    for spot in [spot for owner in owners for spot in _list_assertions(owner, gathered)]:
        _add_criterion(spot, values, criteria, config, gathered)
    # Later readers of the case do not have the messages of the import.
    if left_out := [note.partition(": ")[2] for note in gathered.notes[noted:]]:
        metadata["left_out"] = left_out
    answer = nonblank_text(test.value.get("providerOutput"))
    gathered.drafts.append(
        Draft(
            place=test.place,
            name=name,
            title=name[:80],
            messages=messages,
            reference=criteria.reference,
            # Only `factuality` has a reference, and promptfoo asks a model about it, too.
            metric=None if criteria.reference is None else {"name": "llm_judgement", "threshold": 1.0},
            checks=tuple(criteria.checks),
            expectations=tuple(criteria.expectations),
            metadata=metadata,
            answers=() if answer is None else (answer,),
            prompts=tuple(variants),
        )
    )
    gathered.prompts |= variants


def _merge(name: str, test: PlacedValue, config: _Config) -> dict[str, Any]:
    """Return the test's object below the key `name`, merged over the default test's."""
    return {**as_object(config.default.value.get(name)), **as_object(test.value.get(name))}


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
    spot: PlacedValue, values: Mapping[str, Any], criteria: Criteria, config: _Config, gathered: FileContents
) -> None:
    assertion = spot.value
    if isinstance(assertion, str):
        assertion = parse_assertion(assertion)
    try:
        if isinstance(assertion, dict) and "$ref" in assertion:
            # The assertion's own fields win over its template's.
            assertion = {**_find_template(assertion["$ref"], config.top), **assertion}
        if not isinstance(assertion, dict) or not isinstance(assertion.get("type"), str):
            raise UnmappedError(f"found {assertion!r:.60}, expected an object with a type")
        notes = add_assertion(assertion, _fill_value(assertion.get("value"), values, config.folder), criteria)
    except (UnmappedError, BadReferenceError, TemplateError) as error:
        gathered.note(spot.where, f"left out: {error}")
    else:
        for text in notes:
            gathered.note(spot.where, text)


def _fill_value(value: Any, values: Mapping[str, Any], folder: Path) -> Any:
    """Return an assertion's value with the values of variables and the contents of files."""
    if isinstance(value, list):
        return [_fill_text(element, values, folder) for element in value]
    return _fill_text(value, values, folder)


def _fill_text(value: Any, values: Mapping[str, Any], folder: Path) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("package:"):
        raise UnmappedError(f"{value} is code, which is not run")
    if is_reference(value):
        return read_file_data(find_named_file(value, folder))
    return fill_template(value, values)


def _find_template(reference: Any, config: PlacedValue) -> dict[str, Any]:
    """Return the template of a reference such as `#/assertionTemplates/name`."""
    template: Any = config.value
    for part in str(reference).removeprefix("#/").split("/"):
        template = as_object(template).get(part)
    if not str(reference).startswith("#/") or not isinstance(template, dict):
        raise UnmappedError(f"$ref: {reference!r} names nothing in this file")
    return template
