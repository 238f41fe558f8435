"""promptfoo's tests: in the config, or in YAML, JSON, JSONL and CSV files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import Gathered, read_rows
from pytest_agentbench.packs.importers.promptfoo_assertions import from_text
from pytest_agentbench.packs.importers.promptfoo_prompts import TemplateError
from pytest_agentbench.packs.importers.promptfoo_values import (
    BadReference,
    Spot,
    data_of,
    is_reference,
    named_file,
    named_files,
    of_row,
    text_of,
    top,
)

MOST_COMBINATIONS = 10_000
"""How many combinations of its variables' values one test may have."""
_CONFIGURED = re.compile(r"__config:__expected(\d*):threshold")


def tests_of(config: Spot, folder: Path, gathered: Gathered) -> Iterator[Spot]:
    """Yield each test of a config; files that cannot be read go to `gathered` as lost."""
    given = config.below("tests")
    if given.value is None and config.value.get("scenarios") is None:
        yield Spot({}, ("tests",), config.locate)  # the prompts alone, once
    for spot in given.each():
        if isinstance(spot.value, str):
            try:
                yield from _of_file(spot.value, folder, gathered)
            except (BadReference, ConfigError) as error:
                gathered.lose(spot.where, str(error))
        elif isinstance(spot.value, dict) and "path" not in spot.value:
            yield spot
        else:
            gathered.lose(spot.where, "it is code, which is not run")
    for scenario in config.below("scenarios").each():
        yield from _of_scenario(scenario, gathered)


def _of_file(reference: str, folder: Path, gathered: Gathered) -> Iterator[Spot]:
    if "://" in reference and not is_reference(reference):
        raise BadReference(f"{reference} is not on this machine; download it")
    for path in named_files(reference, folder):
        if path.suffix == ".csv":
            for row in read_rows(path, gathered):
                yield of_row(_of_cells(row.value), row.place)
        elif path.suffix == ".jsonl":
            for row in read_rows(path, gathered):
                yield of_row(row.value, row.place)
        elif path.suffix in (".yaml", ".yml", ".json"):
            for spot in top(path).each():
                if isinstance(spot.value, dict):
                    yield spot
                else:
                    gathered.lose(spot.where, f"found {spot.value!r:.40}, expected an object")
        else:
            raise BadReference(f"{path} is no CSV, JSON, JSONL or YAML")


def _of_scenario(scenario: Spot, gathered: Gathered) -> Iterator[Spot]:
    """Yield each test of a scenario with each of its configs' variables."""
    if not isinstance(scenario.value, dict):
        gathered.lose(scenario.where, f"found {scenario.value!r:.40}, expected an object; write it here")
        return
    tests = list(scenario.below("tests").each()) or [Spot({}, scenario.loc, scenario.locate)]
    for config, test in product(scenario.below("config").each(), tests):
        if isinstance(config.value, dict) and isinstance(test.value, dict):
            try:
                yield Spot(_merged(config.value, test.value), test.loc, test.locate)
            except BadReference as error:
                gathered.lose(test.where, str(error))
        else:
            gathered.lose(test.where, "expected objects; write them here")


def _merged(config: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """Return a test with what a scenario's config adds to it: fields over fields, and the assertions of both.

    :raises BadReference: the two cannot be put together.
    """
    both = {**config, **test}
    for name in ("vars", "options", "metadata"):
        one, other = config.get(name) or {}, test.get(name) or {}
        if not isinstance(one, dict) or not isinstance(other, dict):
            raise BadReference(f"{name}: found {one!r:.40} and {other!r:.40}, expected objects; write them here")
        both[name] = {**one, **other}
    own, more = test.get("assert") or [], config.get("assert") or []
    if not isinstance(own, list) or not isinstance(more, list):
        raise BadReference(f"assert: found {own!r:.40} and {more!r:.40}, expected lists; write them here")
    return both | {"assert": own + more}


def _of_cells(cells: dict[str, str]) -> dict[str, Any]:
    """Return a row of a table as the test that it stands for; `__` begins the columns that are no variables."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}, "metadata": {}}
    thresholds: dict[int, float] = {}
    for name, cell in cells.items():
        if not name.startswith("__"):
            test["vars"][name] = cell
        elif not cell.strip():
            continue
        elif configured := _CONFIGURED.fullmatch(name):
            thresholds[int(configured[1] or 1) - 1] = _number(cell)
        elif name.startswith("__expected"):
            test["assert"].append(from_text(cell))
        elif name in ("__prefix", "__suffix"):
            test["options"][name.removeprefix("__")] = cell
        elif name.startswith("__metadata:"):
            key = name.removeprefix("__metadata:")
            test["metadata"][key.removesuffix("[]")] = _list(cell) if key.endswith("[]") else cell
        elif name == "__threshold":
            test["threshold"] = _number(cell)
        else:
            test[name.removeprefix("__")] = cell
    metric = test.pop("metric", None)
    for at, assertion in enumerate(test["assert"]):
        assertion |= {"threshold": thresholds[at]} if at in thresholds else {}
        assertion |= {"metric": metric} if metric is not None else {}
    return test


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _list(cell: str) -> list[str]:
    return [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", cell)]


def variables_of(test: Spot, default: Spot, folder: Path) -> dict[str, Any]:
    """Return a test's variables over the default ones; both may stand in files.

    :raises BadReference: a file cannot be used.
    """
    found: dict[str, Any] = {}
    for spot in (default.below("vars"), test.below("vars")):
        for value in [spot.value] if isinstance(spot.value, dict) else [each.value for each in spot.each()]:
            data = data_of(named_file(value, folder)) if isinstance(value, str) else value
            if not isinstance(data, dict):
                raise BadReference(f"vars: found {data!r:.60}, expected an object")
            found |= data
    return found


def combinations(variables: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return every combination of values: a list of texts stands for each of them, a file for its text.

    :raises BadReference: a file cannot be used.
    :raises TemplateError: there are too many.
    """
    values: list[list[Any]] = []
    for name, value in variables.items():
        if is_reference(value):
            values.append([_of_variable(path) for path in named_files(value, folder)])
        elif isinstance(value, list) and value and isinstance(value[0], str):
            values.append([_of_variable(named_file(v, folder)) if is_reference(v) else v for v in value])
        elif _is_place(value):
            raise BadReference(f"{name}: found {value}, which is not read")
        else:
            values.append([value])
    found = list(islice(product(*values), MOST_COMBINATIONS + 1))
    if len(found) > MOST_COMBINATIONS:
        raise TemplateError(f"its variables have more than {MOST_COMBINATIONS:,} combinations")
    return [dict(zip(variables, each, strict=True)) for each in found]


def _is_place(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("package:", "exec:"))


def _of_variable(path: Path) -> Any:
    return text_of(path) if path.suffix not in (".yaml", ".yml") else data_of(path)
