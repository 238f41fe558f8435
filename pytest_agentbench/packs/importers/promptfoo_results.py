"""promptfoo's files of results: tests with the answers that a provider gave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.packs.importers.drafts import FileContents, Place, nonblank_text, read_document
from pytest_agentbench.packs.importers.promptfoo_prompts import Prompt, make_prompt
from pytest_agentbench.packs.importers.promptfoo_values import BadReferenceError, PlacedValue

MAX_RESULTS = 256 * 1024 * 1024
"""Bytes of a file of results."""


@dataclass(frozen=True)
class AnsweredTest:
    """A test as a config would have it, whose `providerOutput` is the answer, and the prompt that was asked."""

    name: str
    test: PlacedValue
    prompt: Prompt


def read_results(path: Path) -> list[PlacedValue] | None:
    """Return the results of a file; None if it has none, as a config. Raises ConfigError if it is no JSON."""
    data = read_document(path, MAX_RESULTS)
    results = data.get("results") if isinstance(data, dict) else None
    rows = results.get("results") if isinstance(results, dict) else None
    if not isinstance(rows, list):
        return None
    # Without lines: such files are large, and made by a program.
    place = Place(str(path))
    return [PlacedValue(row, ("results", "results", at), lambda _: place) for at, row in enumerate(rows)]


def list_answered_tests(results: list[PlacedValue], gathered: FileContents) -> Iterator[AnsweredTest]:
    """Yield the tests that the first provider answered, each with its prompt. A note names the other providers."""
    first: str | None = None
    others: dict[str, int] = {}
    for spot in results:
        if not isinstance(spot.value, dict):
            gathered.lose(spot.where, f"found {spot.value!r:.40}, expected an object")
            continue
        provider = _name_provider(spot.value.get("provider"))
        first = provider if first is None else first
        if provider != first:
            others[provider] = others.get(provider, 0) + 1
            continue
        try:
            yield _make_test(spot, gathered)
        except BadReferenceError as error:
            gathered.lose(spot.where, str(error))
    for provider, count in others.items():
        text = f"left out; the provider {provider!r} has {count} of the results: import a file of its own"
        gathered.note(results[0].place, text)


def _name_provider(given: Any) -> str:
    return str(given.get("id") if isinstance(given, dict) else given)


def _make_test(spot: PlacedValue, gathered: FileContents) -> AnsweredTest:
    """Return the test of a result. Raises BadReferenceError if its prompt cannot be asked."""
    result: Mapping[str, Any] = spot.value
    case, variables, prompt = (result.get(name) or {} for name in ("testCase", "vars", "prompt"))
    if not isinstance(case, dict) or not isinstance(variables, dict):
        raise BadReferenceError("found a testCase or vars that is no object")
    raw = prompt.get("raw") if isinstance(prompt, dict) else prompt
    if not isinstance(raw, str) or not raw.strip():
        raise BadReferenceError("found no text of its prompt")
    # Prefix, suffix and default assertions are in the result already.
    kept = {name: case[name] for name in ("assert", "metadata", "threshold") if name in case}
    test = {**kept, "vars": variables, "providerOutput": _read_answer(spot, gathered)}
    name = nonblank_text(case.get("description")) or f"test-{spot.loc[-1]}"
    filled = make_prompt(raw, "")
    return AnsweredTest(name, PlacedValue(test, spot.loc, spot.locate), Prompt("", filled.messages, filled=True))


def _read_answer(spot: PlacedValue, gathered: FileContents) -> str | None:
    response = spot.value.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    if output is None:
        gathered.note(spot.where, "response: no output, so it leaves no answer to score")
        return None
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False)
