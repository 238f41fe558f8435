"""Checks and expectations of a case: names, paths and turns that they refer to."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ValidationInfo

from pytest_agentbench.config.base import (
    Scope,
    find_duplicates,
    find_unregistered,
    resolve_file,
    resolve_path,
    scope_of,
    validate_together,
)
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.base import Later
from pytest_agentbench.records.check_specs import (
    BUILTIN_KINDS,
    Check,
    CustomCheck,
    Declarative,
    MetricAtLeast,
    reads_file,
)

if TYPE_CHECKING:
    from pytest_agentbench.records.case import Expectations


_OF_RUNS = frozenset({"status_is", "output_artifact_present", "max_cost_usd"})
"""Kinds that have no turn: a run keeps one workspace, one status and one cost."""


def list_check_problems(checks: tuple[Check, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    """Return the problems of a list of checks: repeated ids, unknown names, paths, and kinds that have no turn."""
    problems = find_duplicates(checks, "check_id")
    scope = scope_of(info)
    for index, check in enumerate(checks):
        if check.turn is not None:
            problems += [((index, *at), f"{reason}; leave out `turn`") for at, reason in _find_turnless(check)]
        if scope is not None:
            problems += [((index, *at), text) for at, text in _check_problems(check, scope)]
    return problems


def _find_turnless(check: Check) -> Iterator[tuple[Loc, str]]:
    """Yield why a check, or a check that it combines, cannot look at one turn, each with its place."""
    for place, leaf in check.leaves:
        spec = leaf.declarative
        if reads_file(spec):
            continue
        if getattr(spec, "path", None) is not None or getattr(spec, "looks_at", None):
            yield place, f"{leaf.kind} looks at files as they are at the end of the run, not after one turn"
        elif leaf.kind in _OF_RUNS:
            yield place, f"{leaf.kind} looks at the whole run, not at one turn"


def _turn_check_problems(checks: tuple[Check, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    problems = list_check_problems(checks, info)
    for index, check in enumerate(checks):
        if check.turn is not None:
            problems.append(((index, "turn"), "found in a check of a turn, which decides this turn; leave it out"))
        else:
            advice = "write the check below deterministic_checks"
            problems += [((index, *at), f"{reason}; {advice}") for at, reason in _find_turnless(check)]
    return problems


TurnChecks = Annotated[tuple[Later[Check], ...], validate_together(_turn_check_problems)]
"""Checks of one turn."""


def find_turn_problems(
    checks: tuple[Check, ...], expectations: "Expectations", turns: int
) -> Iterator[tuple[Loc, str]]:
    """Yield the checks and expectations of a case that name a turn which it lacks, each with its place in the file."""
    for place, message in find_check_turns(checks, turns):
        yield ("deterministic_checks", *place), message
    for place, message in find_expectation_turns(expectations, turns):
        yield ("expectations", *place), message


def find_check_turns(checks: tuple[Check, ...], turns: int) -> Iterator[tuple[Loc, str]]:
    """Yield the checks that name a turn which a case with so many turns lacks, each with its place."""
    for index, check in enumerate(checks):
        if check.turn is not None and (problem := _describe_missing(check.turn, turns)):
            yield (index, "turn"), problem


def find_expectation_turns(expectations: "Expectations", turns: int) -> Iterator[tuple[Loc, str]]:
    """Yield the expectations that name a turn which a case with so many turns lacks, each with its place."""
    lists = {
        "hard_expectations": expectations.hard_expectations,
        "soft_expectations": expectations.soft_expectations,
    }
    for name, listed in lists.items():
        for index, expectation in enumerate(listed):
            if expectation.turn is not None and (problem := _describe_missing(expectation.turn, turns)):
                yield (name, index, "turn"), problem


def place_problems(written: Any, problems: Iterable[tuple[Loc, str]]) -> Iterator[tuple[Loc, str]]:
    """Yield the problems of expectations at their places as `written`: a list has the hard ones."""
    for place, text in problems:
        yield place[1:] if isinstance(written, list) else place, text


def _describe_missing(turn: int | str, turns: int) -> str | None:
    if not turns:
        return f"found {turn!r}, and the case has no turns; leave it out, or write `input.turns`"
    if isinstance(turn, int) and turn > turns:
        return f"found {turn}, expected at most {turns}, the number of turns of the case"
    return None


def _check_problems(check: Check, scope: Scope) -> Iterator[tuple[Loc, str]]:
    """Yield names that nobody registered, and paths that lead nowhere or out of the config root."""
    if check.python_hook is not None:
        if scope.guest is not None:
            yield from _path_problem(
                ("python_hook",), "a Python hook", scope, lambda what, _: scope.refuse_program(what)
            )
        if check.python_hook.path is not None:
            yield from _path_problem(("python_hook", "path"), check.python_hook.path, scope, resolve_file)
        return
    for place, leaf in check.leaves:
        yield from (((*place, *at), text) for at, text in _spec_problems(leaf.declarative, scope))


def _spec_problems(spec: Declarative | None, scope: Scope) -> Iterator[tuple[Loc, str]]:
    if isinstance(spec, CustomCheck):
        known = scope.known.checks | BUILTIN_KINDS if scope.known.checks is not None else None
        yield from find_unregistered([(("kind",), spec.kind)], known, "check kind")
    elif isinstance(spec, MetricAtLeast):
        yield from find_unregistered([(("name",), spec.name)], scope.known.metrics, "metric")
    path_text = getattr(spec, "path", None)
    if path_text is not None and ".." in path_text:
        yield from _path_problem(("path",), path_text, scope, resolve_path)


def _path_problem(
    loc: Loc, text: str, scope: Scope, resolve: Callable[[str, Scope], object]
) -> Iterator[tuple[Loc, str]]:
    try:
        resolve(text, scope)
    except ValueError as error:
        yield loc, str(error)
