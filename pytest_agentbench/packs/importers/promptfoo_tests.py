"""Read promptfoo's tests from the config, and from YAML, JSON, JSONL and CSV files next to it."""

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
"""Maximum combinations of its variables' values in one test."""
_CONFIGURED = re.compile(r"__config:__expected(\d*):threshold")


def read_tests(config: PlacedValue, folder: Path, gathered: FileContents) -> Iterator[PlacedValue]:
    """Yield each test of a config; files that cannot be read go to `gathered` as lost."""
    tests = config.below("tests")
    if tests.value is None and config.value.get("scenarios") is None:
        # Without tests promptfoo sends each prompt once.
        yield PlacedValue({}, ("tests",), config.locate)
    for spot in tests.each():
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
            raise BadReferenceError(f"{path} is not CSV, JSON, JSONL or YAML")


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
    """Return a test merged with a scenario's config. The test's fields replace the config's; assertions are joined.

    :raises BadReferenceError: the two cannot be merged.
    """
    both = {**config, **test}
    for name in ("vars", "options", "metadata"):
        one, other = config.get(name) or {}, test.get(name) or {}
        if not isinstance(one, dict) or not isinstance(other, dict):
            raise BadReferenceError(f"{name}: found {one!r:.40} and {other!r:.40}, expected objects; write them here")
        both[name] = {**one, **other}
    of_test, of_config = test.get("assert") or [], config.get("assert") or []
    if not isinstance(of_test, list) or not isinstance(of_config, list):
        raise BadReferenceError(f"assert: found {of_test!r:.40} and {of_config!r:.40}, expected lists; write them here")
    return both | {"assert": of_test + of_config}


def _make_row_test(cells: dict[str, str]) -> dict[str, Any]:
    """Return the test of a table's row. Columns that begin with `__` are settings, the others variables."""
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
            if key.endswith("[]"):
                test["metadata"][key.removesuffix("[]")] = _parse_list(cell)
            else:
                test["metadata"][key] = cell
        elif name == "__threshold":
            test["threshold"] = _parse_number(cell)
        else:
            test[name.removeprefix("__")] = cell
    metric = test.pop("metric", None)
    for at, assertion in enumerate(test["assert"]):
        if at in thresholds:
            assertion["threshold"] = thresholds[at]
        if metric is not None:
            assertion["metric"] = metric
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
    merged: dict[str, Any] = {}
    for spot in (*default.below("vars").each(), *test.below("vars").each()):
        data = spot.value
        if isinstance(data, str):
            data = read_file_data(find_named_file(data, folder))
        if not isinstance(data, dict):
            raise BadReferenceError(f"vars: found {data!r:.60}, expected an object")
        merged |= data
    return merged


def list_combinations(variables: dict[str, Any], folder: Path, *, expanded: bool = True) -> list[dict[str, Any]]:
    """Return every combination of values: a list contributes each of its texts, a file its text.

    Return one combination if not `expanded`: lists are then values like others.

    :raises BadReferenceError: a file cannot be used.
    :raises TemplateError: there are more than MOST_COMBINATIONS.
    """
    values: list[list[Any]] = []
    for name, value in variables.items():
        if is_reference(value) and expanded:
            values.append([_read_variable(path) for path in find_named_files(value, folder)])
        # promptfoo multiplies only lists of texts: a list of objects is one value.
        elif expanded and isinstance(value, list) and value and isinstance(value[0], str):
            values.append([_read_reference(element, folder) for element in value])
        elif _is_place(value):
            raise BadReferenceError(f"{name}: found {value}, which is not read")
        else:
            values.append([_read_reference(value, folder)])
    # One more than allowed reveals that there are too many, without making them all.
    combinations = list(islice(product(*values), MOST_COMBINATIONS + 1))
    if len(combinations) > MOST_COMBINATIONS:
        raise TemplateError(f"its variables have more than {MOST_COMBINATIONS:,} combinations")
    return [dict(zip(variables, combination, strict=True)) for combination in combinations]


def _is_place(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("package:", "exec:"))


def _read_reference(value: Any, folder: Path) -> Any:
    """Return the content of the file that a value names; another value unchanged."""
    if not is_reference(value):
        return value
    return _read_variable(find_named_file(value, folder))


def _read_variable(path: Path) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        return read_file_text(path)
    return read_file_data(path)
