"""The metric `calls_match`: whether a run calls the expected functions with accepted arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.models.thoughts import drop_thoughts
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact

_MOST_TEXT = 20_000
"""Maximum characters of a text that is read as calls."""
_MOST_CALLS = 100
_BLOCK = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
# Python warns of other escapes, and a warning may be an error.
_NO_ESCAPE = re.compile(r"\\(?![\\'\"abfnrtvxuUN0-7\n])")
_NOT_COMPARED = re.compile(r"[\s,./_*^-]")
_WORDS = {"true": True, "false": False, "null": None}


class Call(NamedTuple):
    """A call of a function by name, with its arguments; None for arguments that cannot be read."""

    name: str
    arguments: Mapping[str, Any] | None


@metric("calls_match", trace=True)
def calls_match(
    case: Case, artifact: RunArtifact, *, calls: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None
) -> Measured:
    """1 if the run makes exactly the expected calls, in any order: its tool calls, else those in its answer.

    An answer is read as Python: `[f(a=1), g(b="x")]`, or a call a line. Each expected call is
    `{name: {argument: [accepted values]}}`, and "" among the values lets the argument be left out. Values of an object
    are lists of accepted values too. Texts are compared without case, blanks and the marks `,./-_*^`, names with `.` as
    `_`. Details: `expected` and `found` calls, `reason`. Raises ValueError for expected calls of another form.
    """
    expected = [*_read_expected(calls)]
    actual = [Call(call.name, call.arguments) for call in artifact.tool_calls]
    if not actual:
        actual = read_calls(drop_thoughts(artifact.final_output or ""))
    details: dict[str, Any] = {"expected": len(expected), "found": len(actual)}
    problem = _find_problem(expected, actual)
    if problem is None:
        return Measured(1.0, details)
    return Measured(0.0, {**details, "reason": problem})


def read_calls(text: str) -> list[Call]:
    """Return the calls of a text in Python, [] if it contains anything else."""
    if (block := _BLOCK.search(text)) is not None:
        text = block[1]
    code = text.strip().strip("`").strip()
    if len(code) > _MOST_TEXT:
        return []
    try:
        statements = ast.parse(_NO_ESCAPE.sub(r"\\\\", code)).body
        nodes = [node for statement in statements for node in _list_nodes(statement)]
        return [_read_call(node) for node in nodes]
    # Deep nesting raises RecursionError or MemoryError.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _list_nodes(statement: ast.stmt) -> Sequence[ast.expr]:
    if not isinstance(statement, ast.Expr):
        raise ValueError("no expression")
    value = statement.value
    if isinstance(value, ast.List | ast.Tuple):
        return value.elts
    return [value]


def _read_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueError("no call")
    named = {keyword.arg: _read_value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    # The parameters of the function are unknown here, so an argument without a name has no known place.
    is_complete = not node.args and len(named) == len(node.keywords)
    return Call(ast.unparse(node.func), named if is_complete else None)


def _read_value(node: ast.expr) -> Any:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_read_value(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_read_value(key)): _read_value(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id, node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _read_expected(calls: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if calls is None:
        return
    if not isinstance(calls, list | tuple):
        calls = [calls]
    for call in calls:
        if (
            not isinstance(call, Mapping)
            or not all(isinstance(arguments, Mapping) for arguments in call.values())
            or not call
        ):
            raise ValueError(
                f"calls_match: found the expected call {str(call)[:80]!r}, expected {{name: {{argument: [values]}}}}"
            )
        yield from call.items()


def _find_problem(expected: Sequence[tuple[str, Mapping[str, Any]]], actual: Sequence[Call]) -> str | None:
    """Return the difference between the calls and the expected ones, or None if they match."""
    if len(expected) != len(actual):
        return f"found {len(actual)} calls, expected {len(expected)}"
    if len(actual) > _MOST_CALLS:
        return f"found {len(actual)} calls, expected at most {_MOST_CALLS}"
    problems = [[_compare(*one, call) for call in actual] for one in expected]
    taken: dict[int, int] = {}
    for at in range(len(expected)):
        if not _assign(at, problems, taken, set()):
            return next(filter(None, (problems[at][at], *problems[at])))
    return None


def _assign(at: int, problems: Sequence[Sequence[str | None]], taken: dict[int, int], seen: set[int]) -> bool:
    """Give an expected call a found one that fits it, moving others to another one if need be (Kuhn's algorithm)."""
    for place, problem in enumerate(problems[at]):
        if problem is None and place not in seen:
            seen.add(place)
            if place not in taken or _assign(taken[place], problems, taken, seen):
                taken[place] = at
                return True
    return False


def _compare(name: str, arguments: Mapping[str, Any], call: Call) -> str | None:
    """Return the difference between a call and the expected one, or None if it matches."""
    if _plain_name(call.name) != _plain_name(name):
        return f"found a call of {call.name[:80]!r}, expected {name!r}"
    if call.arguments is None:
        return f"{name}: found arguments without names, or that are no JSON object"
    for argument, value in call.arguments.items():
        if argument not in arguments:
            return f"{name}: found an argument {argument[:80]!r} that is not expected"
        if not _is_accepted(value, arguments[argument]):
            return f"{name}: {argument}: found {str(value)[:80]!r}, expected one of {str(arguments[argument])[:200]}"
    missing = [each for each, accepted in arguments.items() if each not in call.arguments and not _optional(accepted)]
    if missing:
        return f"{name}: found no argument {missing[0]!r}"
    return None


def _plain_name(name: str) -> str:
    return re.sub(r"[.:]+", "_", name)


def _options(accepted: Any) -> Sequence[Any]:
    if isinstance(accepted, list):
        return accepted
    return [accepted]


def _optional(accepted: Any) -> bool:
    return "" in _options(accepted)


def _is_accepted(value: Any, accepted: Any) -> bool:
    return any(_equals(value, option) for option in _options(accepted))


def _equals(value: Any, option: Any) -> bool:
    if isinstance(value, bool) or isinstance(option, bool):
        return value is option
    if isinstance(value, str) and isinstance(option, str):
        return _plain_text(value) == _plain_text(option)
    if isinstance(value, list | tuple) and isinstance(option, list):
        return len(value) == len(option) and all(map(_equals, value, option))
    if isinstance(value, Mapping) and isinstance(option, Mapping):
        all_accepted = all(key in option and _is_accepted(item, option[key]) for key, item in value.items())
        return all_accepted and all(key in value or _optional(option[key]) for key in option)
    return bool(value == option)


def _plain_text(text: str) -> str:
    return _NOT_COMPARED.sub("", text).casefold().replace("'", '"')
