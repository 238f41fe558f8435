"""promptfoo's tests: in the config, or in YAML, JSON, JSONL and CSV files next to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import FileContents, read_rows
from pytest_agentbench.packs.importers.promptfoo_assertions import parse_assertion
from pytest_agentbench.packs.importers.promptfoo_prompts import TemplateError
from pytest_agentbench.packs.importers.promptfoo_values import (
    BadReferenceError,
    PlacedValue,
    find_named_file,
    find_named_files,
    is_reference,
    make_row_value,
    read_file_data,
    read_file_text,
    read_file_value,
)

MOST_COMBINATIONS = 10_000
"""How many combinations of its variables' values one test may have."""
_CONFIGURED = re.compile(r"__config:__expected(\d*):threshold")


def read_tests(config: PlacedValue, folder: Path, gathered: FileContents) -> Iterator[PlacedValue]:
    """Yield each test of a config; files that cannot be read go to `gathered` as lost."""
    given = config.below("tests")
    if given.value is None and config.value.get("scenarios") is None:
        yield PlacedValue({}, ("tests",), config.locate)  # the prompts alone, once
    for spot in given.each():
        if isinstance(spot.value, str):
            try:
                yield from _read_tests_file(spot.value, folder, gathered)
            except (BadReferenceError, ConfigError) as error:
                gathered.lose(spot.where, str(error))
        elif isinstance(spot.value, dict) and "path" not in spot.value:
            yield spot
        else:
            gathered.lose(spot.where, "it is code, which is not run")
    for scenario in config.below("scenarios").each():
        yield from _list_scenario_tests(scenario, gathered)


def _read_tests_file(reference: str, folder: Path, gathered: FileContents) -> Iterator[PlacedValue]:
    if "://" in reference and not is_reference(reference):
        raise BadReferenceError(f"{reference} is not on this machine; download it")
    for path in find_named_files(reference, folder):
        if path.suffix == ".csv":
            for row in read_rows(path, gathered):
                yield make_row_value(_make_row_test(row.value), row.place)
        elif path.suffix == ".jsonl":
            for row in read_rows(path, gathered):
                yield make_row_value(row.value, row.place)
        elif path.suffix in (".yaml", ".yml", ".json"):
            for spot in read_file_value(path).each():
                if isinstance(spot.value, dict):
                    yield spot
                else:
                    gathered.lose(spot.where, f"found {spot.value!r:.40}, expected an object")
        else:
            raise BadReferenceError(f"{path} is no CSV, JSON, JSONL or YAML")


def _list_scenario_tests(scenario: PlacedValue, gathered: FileContents) -> Iterator[PlacedValue]:
    """Yield each test of a scenario with each of its configs' variables."""
    if not isinstance(scenario.value, dict):
        gathered.lose(scenario.where, f"found {scenario.value!r:.40}, expected an object; write it here")
        return
    tests = list(scenario.below("tests").each()) or [PlacedValue({}, scenario.loc, scenario.locate)]
    for config, test in product(scenario.below("config").each(), tests):
        if isinstance(config.value, dict) and isinstance(test.value, dict):
            try:
                yield PlacedValue(_merge_tests(config.value, test.value), test.loc, test.locate)
            except BadReferenceError as error:
                gathered.lose(test.where, str(error))
        else:
            gathered.lose(test.where, "expected objects; write them here")


def _merge_tests(config: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """Return a test merged with a scenario's config: its fields replace the config's, and both have their assertions.

    :raises BadReferenceError: the two cannot be merged.
    """
    both = {**config, **test}
    for name in ("vars", "options", "metadata"):
        one, other = config.get(name) or {}, test.get(name) or {}
        if not isinstance(one, dict) or not isinstance(other, dict):
            raise BadReferenceError(f"{name}: found {one!r:.40} and {other!r:.40}, expected objects; write them here")
        both[name] = {**one, **other}
    own, more = test.get("assert") or [], config.get("assert") or []
    if not isinstance(own, list) or not isinstance(more, list):
        raise BadReferenceError(f"assert: found {own!r:.40} and {more!r:.40}, expected lists; write them here")
    return both | {"assert": own + more}


def _make_row_test(cells: dict[str, str]) -> dict[str, Any]:
    """Return the test of a table's row; columns that begin with `__` are not variables."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
    thresholds: dict[int, float] = {}
    for name, cell in cells.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif not cell.strip():
            continue
        elif configured := _CONFIGURED.fullmatch(name):
            # `__config:__expected2:threshold` belongs to the second assertion, without a number to the first.
            thresholds[int(configured[1] or 1) - 1] = _parse_number(cell)
        elif name.startswith("__expected"):
            test["assert"].append(parse_assertion(cell))
        elif name in ("__prefix", "__suffix"):
            test["options"][name.removeprefix("__")] = cell
        elif name.startswith("__metadata:"):
            key = name.removeprefix("__metadata:")
            test["metadata"][key.removesuffix("[]")] = _parse_list(cell) if key.endswith("[]") else cell
        elif name == "__threshold":
            test["threshold"] = _parse_number(cell)
        else:
            test[name.removeprefix("__")] = cell
    metric = test.pop("metric", None)
    for at, assertion in enumerate(test["assert"]):
        assertion |= {"threshold": thresholds[at]} if at in thresholds else {}
        assertion |= {"metric": metric} if metric is not None else {}
    return test


def _parse_number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _parse_list(cell: str) -> list[str]:
    return [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", cell)]


def merge_variables(test: PlacedValue, default: PlacedValue, folder: Path) -> dict[str, Any]:
    """Return a test's variables merged over the default ones; both may be in files.

    :raises BadReferenceError: a file cannot be used.
    """
    found: dict[str, Any] = {}
    for spot in (default.below("vars"), test.below("vars")):
        for value in [spot.value] if isinstance(spot.value, dict) else [each.value for each in spot.each()]:
            data = read_file_data(find_named_file(value, folder)) if isinstance(value, str) else value
            if not isinstance(data, dict):
                raise BadReferenceError(f"vars: found {data!r:.60}, expected an object")
            found |= data
    return found


def list_combinations(variables: dict[str, Any], folder: Path, *, expanded: bool = True) -> list[dict[str, Any]]:
    """Return every combination of values: a list contributes each of its texts, a file its text.

    Return one combination if not `expanded`: a list is then a value like any other.

    :raises BadReferenceError: a file cannot be used.
    :raises TemplateError: there are too many.
    """
    values: list[list[Any]] = []
    for name, value in variables.items():
        if is_reference(value):
            paths = find_named_files(value, folder) if expanded else [find_named_file(value, folder)]
            values.append([_read_variable(path) for path in paths])
        # promptfoo multiplies lists of texts alone: a list of objects is one value.
        elif expanded and isinstance(value, list) and value and isinstance(value[0], str):
            values.append([_read_variable(find_named_file(v, folder)) if is_reference(v) else v for v in value])
        elif _is_place(value):
            raise BadReferenceError(f"{name}: found {value}, which is not read")
        else:
            values.append([value])
    # One more than allowed reveals that there are too many, without making them all.
    found = list(islice(product(*values), MOST_COMBINATIONS + 1))
    if len(found) > MOST_COMBINATIONS:
        raise TemplateError(f"its variables have more than {MOST_COMBINATIONS:,} combinations")
    return [dict(zip(variables, each, strict=True)) for each in found]


def _is_place(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("package:", "exec:"))


def _read_variable(path: Path) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        return read_file_text(path)
    return read_file_data(path)
