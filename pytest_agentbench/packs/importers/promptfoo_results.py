"""Read promptfoo's files of results: tests with the answers of a provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import (
    FileContents,
    Place,
    as_text,
    nonblank_text,
    read_document,
)
from pytest_agentbench.packs.importers.promptfoo_prompts import Prompt, make_prompt
from pytest_agentbench.packs.importers.promptfoo_values import BadReferenceError, PlacedValue

MAX_RESULTS = 256 * 1024 * 1024
"""Bytes of a file of results."""


@dataclass(frozen=True)
class AnsweredTest:
    """A test as in a config, with the answer in `providerOutput`, and its prompt."""

    name: str
    test: PlacedValue
    prompt: Prompt


def read_results(path: Path) -> list[PlacedValue] | None:
    """Return the results of a file; None if it has none, as a config. Raises ConfigError if it is not JSON."""
    results = as_object(read_document(path, MAX_RESULTS)).get("results")
    rows = as_object(results).get("results")
    if not isinstance(rows, list):
        return None
    # Without line numbers: such files are large, and written by a program.
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
        if first is None:
            first = provider
        if provider != first:
            others[provider] = others.get(provider, 0) + 1
            continue
        try:
            yield _make_test(spot, gathered)
        except BadReferenceError as error:
            gathered.lose(spot.where, str(error))
    for provider, count in others.items():
        text = f"left out; the provider {provider!r} has {count} of the results: import them from a separate file"
        gathered.note(results[0].place, text)


def _name_provider(provider: Any) -> str:
    if isinstance(provider, dict):
        provider = provider.get("id")
    return str(provider)


def _make_test(spot: PlacedValue, gathered: FileContents) -> AnsweredTest:
    """Return the test of a result. Raises BadReferenceError if its prompt cannot be asked."""
    result: Mapping[str, Any] = spot.value
    case, variables, prompt = (result.get(name) or {} for name in ("testCase", "vars", "prompt"))
    if not isinstance(case, dict) or not isinstance(variables, dict):
        raise BadReferenceError("found a testCase or vars that is not an object")
    text = nonblank_text(prompt.get("raw") if isinstance(prompt, dict) else prompt)
    if text is None:
        raise BadReferenceError("found no text of its prompt")
    # promptfoo has already added prefix, suffix and default assertions to the result.
    fields = {name: case[name] for name in ("assert", "metadata", "threshold") if name in case}
    test = {**fields, "vars": variables, "providerOutput": _read_answer(spot, gathered)}
    name = nonblank_text(case.get("description")) or f"test-{spot.loc[-1]}"
    filled = make_prompt(text, "")
    return AnsweredTest(name, PlacedValue(test, spot.loc, spot.locate), Prompt("", filled.messages, filled=True))


def _read_answer(spot: PlacedValue, gathered: FileContents) -> str | None:
    output = as_object(spot.value.get("response")).get("output")
    if output is None:
        gathered.note(spot.where, "response: no output, so there is no answer to score")
        return None
    return as_text(output)
