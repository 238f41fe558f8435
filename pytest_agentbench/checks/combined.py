"""Checks that combine others: `any_of`, `all_of`, `not`.

An error of a combined check is the result if the other checks do not decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.checks.base import CheckContext, Verdict, verdict
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.records.check_specs import AllOf, AnyOf, Not


class Part(NamedTuple):
    """One of several verdicts that are combined. `message` is its part of a joined message."""

    message: str
    verdict: Verdict


async def any_of(spec: AnyOf, context: CheckContext) -> Verdict:
    """Pass if at least one of the checks passes."""
    return join_any(await _decide(spec.checks, context), "check")


async def all_of(spec: AllOf, context: CheckContext) -> Verdict:
    """Pass if each of the checks passes."""
    return join_all(await _decide(spec.checks, context), "check")


def join_any(parts: Sequence[Part], noun: str) -> Verdict:
    """Return the first verdict that passed; else the first without a decision; else a failure with all messages."""
    passed = next((part.verdict for part in parts if part.verdict.outcome == "passed"), None)
    if passed is not None:
        return passed
    if (undecided := _find_undecided(parts)) is not None:
        return undecided
    return _join(False, f"none of {count_text(len(parts), noun)} passes", parts, " or ")


def join_all(parts: Sequence[Part], noun: str) -> Verdict:
    """Return the failed verdicts together; else the first without a decision; else all of them, which passed."""
    failed = [part for part in parts if part.verdict.outcome == "failed"]
    if failed:
        return _join(False, f"{len(failed)} of {count_text(len(parts), noun)} failed", failed, " and ")
    if (undecided := _find_undecided(parts)) is not None:
        return undecided
    return _join(True, f"{count_text(len(parts), noun)} passed", parts, " and ")


async def not_(spec: Not, context: CheckContext) -> Verdict:
    """Pass if the check fails."""
    [(_, inner)] = await _decide([spec.check], context)
    if inner.outcome not in ("passed", "failed"):
        return inner
    expected = None if inner.expected is None else f"not {inner.expected}"
    return verdict(inner.outcome == "failed", inner.message, expected, inner.actual)


async def _decide(specs: Iterable[Any], context: CheckContext) -> list[Part]:
    assert context.decide is not None  # `run_checks` sets it
    verdicts = [(spec.kind, await context.decide(spec)) for spec in specs]
    return [Part(f"{kind}: {each.message}", each) for kind, each in verdicts]


def _find_undecided(parts: Iterable[Part]) -> Verdict | None:
    return next((part.verdict for part in parts if part.verdict.outcome not in ("passed", "failed")), None)


def _join(passed: bool, head: str, parts: Collection[Part], operator: str) -> Verdict:
    """Return a verdict with the messages, the expected and the actual texts of all parts, each once."""
    messages = "; ".join(part.message for part in parts)
    expected = dict.fromkeys(part.verdict.expected for part in parts if part.verdict.expected)
    actual = dict.fromkeys(part.verdict.actual for part in parts if part.verdict.actual)
    return verdict(passed, f"{head}: {messages}", operator.join(expected) or None, "; ".join(actual) or None)
