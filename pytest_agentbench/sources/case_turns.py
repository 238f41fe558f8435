"""Turns of a `test.yaml`: their messages, and their checks and expectations as those of the case."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.case_messages import MessageSpec, TurnSpec
from pytest_agentbench.config.check_list import find_turn_problems
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.records.case import Case, Expectation, Expectations, Message

ReadMessages = Callable[[MessageSpec], tuple[Message, ...]]
"""Returns the messages that an element of a list stands for: several if it names a file."""


def add_turns(case: Case, file: TestCaseFile, read_messages: ReadMessages) -> Case:
    """Return the case with the turns of its file.

    Checks and expectations of a turn follow the case's own, with the turn's number. Raises ConfigError for a turn with
    checks, expectations or time that is a file of several messages, and for a number that no turn has.
    """
    messages, checks = list[Message](), [*case.checks]
    hard, soft = [*case.expectations.hard_expectations], [*case.expectations.soft_expectations]
    for index, spec in enumerate(file.input.turns):
        turn_messages = read_messages(spec)
        if len(turn_messages) != 1 and _is_one_turn(spec):
            problem = f"found {len(turn_messages)} messages, expected one for a turn with its own checks or time"
            raise make_located_error(case.path, [(("input", "turns", index, "source", "path"), problem)])
        number = len(messages) + 1
        checks += (check.model_copy(update={"turn": number}) for check in spec.checks)
        hard += _number_expectations(spec.expectations.hard_expectations, number)
        soft += _number_expectations(spec.expectations.soft_expectations, number)
        if spec.max_seconds is not None:
            turn_messages = (turn_messages[0].model_copy(update={"max_seconds": spec.max_seconds}),)
        messages += turn_messages
    # A file with all turns inline has reported these before
    if problems := [*find_turn_problems(file.deterministic_checks, file.expectations, len(messages))]:
        raise make_located_error(case.path, problems)
    expectations = Expectations(hard_expectations=tuple(hard), soft_expectations=tuple(soft))
    return case.model_copy(update={"turns": tuple(messages), "checks": tuple(checks), "expectations": expectations})


def _is_one_turn(spec: TurnSpec) -> bool:
    expectations = spec.expectations
    has_own = spec.checks or expectations.hard_expectations or expectations.soft_expectations
    return bool(has_own) or spec.max_seconds is not None


def _number_expectations(expectations: tuple[Expectation, ...], number: int) -> Iterator[Expectation]:
    return (expectation.model_copy(update={"turn": number}) for expectation in expectations)


def locate_checks(file: TestCaseFile) -> list[Loc]:
    """Return the place of each check of the file's case, in the case's order."""
    own: list[Loc] = [("deterministic_checks", at) for at in range(len(file.deterministic_checks))]
    of_turns = enumerate(file.input.turns)
    return own + [("input", "turns", index, "checks", at) for index, turn in of_turns for at in range(len(turn.checks))]
