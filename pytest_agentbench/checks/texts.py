"""Checks that compare the final output, or a file, with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_agentbench.checks.base import CheckContext, Verdict, excerpt, read_answer, verdict

if TYPE_CHECKING:
    from pytest_agentbench.records.text_checks import Contains, Equals, IContains, NotContains, StartsWith

_AROUND = 100
"""Characters shown before and after an unwanted text."""


def contains(spec: Contains, context: CheckContext) -> Verdict:
    """Pass if the text contains `spec.text`."""
    answer, name = read_answer(spec.path, context)
    if spec.text in answer:
        return verdict(True, f"{name} contains the text", spec.text, excerpt(answer))
    return verdict(False, f"{name} does not contain the text", spec.text, excerpt(answer))


def icontains(spec: IContains, context: CheckContext) -> Verdict:
    """Pass if the text contains `spec.text`, whether in capital or small letters."""
    answer, name = read_answer(spec.path, context)
    if spec.text.casefold() in answer.casefold():
        return verdict(True, f"{name} contains the text", spec.text, excerpt(answer))
    return verdict(False, f"{name} does not contain the text in any letter case", spec.text, excerpt(answer))


def not_contains(spec: NotContains, context: CheckContext) -> Verdict:
    """Pass if the text does not contain `spec.text`."""
    answer, name = read_answer(spec.path, context)
    at = answer.find(spec.text)
    if at < 0:
        return verdict(True, f"{name} does not contain the text", f"not {spec.text}", excerpt(answer))
    passage = answer[max(0, at - _AROUND) : at + len(spec.text) + _AROUND]
    return verdict(False, f"{name} contains the text", f"not {spec.text}", passage)


def starts_with(spec: StartsWith, context: CheckContext) -> Verdict:
    """Pass if the text starts with `spec.text`."""
    answer, name = read_answer(spec.path, context)
    verb = "starts" if (passed := answer.startswith(spec.text)) else "does not start"
    return verdict(passed, f"{name} {verb} with the text", spec.text, answer)


def equals(spec: Equals, context: CheckContext) -> Verdict:
    """Pass if the text is exactly `spec.text`."""
    answer, name = read_answer(spec.path, context)
    if answer == spec.text:
        return verdict(True, f"{name} is the text", spec.text, answer)
    if answer.split() == spec.text.split():
        return verdict(False, f"{name} differs from the text in white space only", repr(spec.text), repr(answer))
    return verdict(False, f"{name} is not the text", spec.text, excerpt(answer))
