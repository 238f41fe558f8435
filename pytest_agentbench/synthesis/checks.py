"""The mechanical checks of drafts: what can be told without asking a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_agentbench.synthesis.base import Catalogue, Generated, Reason
from pytest_agentbench.synthesis.names import named_in
from pytest_agentbench.synthesis.numbers import lost_numbers
from pytest_agentbench.synthesis.references import forbidden_references


def detailed_problems(
    generated: Generated, catalogues: Sequence[Catalogue], existing: Iterable[str]
) -> Iterator[Reason]:
    """What is wrong with a detailed task. `existing` are the detailed texts of other tasks."""
    text = generated.task_description
    yield from forbidden_references(text, "the detailed task")
    graph = generated.dependencies
    tools = {*graph, *(tool for prerequisites in graph.values() for tool in prerequisites)}
    for server in _unused_servers((text, generated.dependency_analysis), tools, catalogues):
        yield Reason(kind="unused server", text=f"neither {server!r} nor one of its tools is named; use every server")
    yield from _repetitions(text, existing)


def fuzzy_problems(
    detailed: str, fuzzy: str, catalogues: Sequence[Catalogue], existing: Iterable[str], *, exact: bool
) -> Iterator[Reason]:
    """What is wrong with the fuzzy text of a detailed task. `exact`: it has to keep all numbers."""
    yield from forbidden_references(fuzzy, "the fuzzy text")
    yield from named_in(fuzzy, catalogues)
    if exact and (lost := lost_numbers(detailed, fuzzy)):
        yield Reason(kind="lost number", text=f"the fuzzy text lacks {', '.join(lost)}; keep every number")
    yield from _repetitions(fuzzy, existing)


def _unused_servers(texts: Iterable[str], tools: Iterable[str], catalogues: Sequence[Catalogue]) -> list[str]:
    """The servers that neither a text names, as they or one of their tools are written, nor one of the `tools` (ids).

    A tool's name that another of the servers has too says nothing without its server's.
    """
    said, named = "\n".join(texts), set(tools)
    owners: dict[str, set[str]] = {}
    for catalogue in catalogues:
        for tool in catalogue.tools:
            owners.setdefault(tool.name, set()).add(catalogue.server)

    def is_used(catalogue: Catalogue) -> bool:
        if _stands_in(catalogue.server, said) or any(tool.tool_id in named for tool in catalogue.tools):
            return True
        return any(len(owners[tool.name]) == 1 and _stands_in(tool.name, said) for tool in catalogue.tools)

    return [catalogue.server for catalogue in catalogues if not is_used(catalogue)]


def _stands_in(name: str, text: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None


def _repetitions(text: str, existing: Iterable[str]) -> Iterator[Reason]:
    plain = _plain(text)
    if any(_plain(other) == plain for other in existing):
        yield Reason(kind="repetition", text="another task has the same text; make a different one")


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
