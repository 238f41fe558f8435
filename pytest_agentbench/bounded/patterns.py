"""Patterns and JSONPath queries of case files and servers: bounded in time, in nodes, and in the memory they need."""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import cache, lru_cache
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import regex


# Patterns of case files, of schemas and of servers: bounded in the time they take and in the memory they need.
#
# They are read by the library `regex`, whose search can be given a time limit: one of `re` runs as long as it likes,
# and nobody else gets the interpreter meanwhile.


MAX_PATTERN = 10_000
"""Characters of a pattern: to compile it cannot be interrupted."""
MAX_PARTS = 20_000
"""Parts of a pattern with its repetitions written out: `(a?){999}` is compiled to 999 copies, of about 1 kB each."""
MAX_NESTING = 50
"""Groups inside of one another: each takes five frames of Python's stack to compile, of which there are a thousand."""

_TOKEN = re.compile(
    r"(?P<none>\(\?\#[^)]*\))"
    r"|(?P<least>\{\s*(\d+)\s*(?:,[\s\d]*)?\})"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<part>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)
_LEAST = re.compile(r"\{\s*(\d+)")
_VERBOSE = re.compile(r"\(\?[A-Za-z0-9-]*x")
"""In the verbose form `#` begins a comment, which may hold brackets that mean nothing."""
_VERSION_1 = re.compile(r"\(\?[A-Za-z0-9-]*V")
"""The library's own syntax, in which sets nest."""


def compile_pattern(pattern: str, *, ignore_case: bool = False) -> regex.Pattern[str]:
    """Compile a pattern in Python's syntax. Raises ValueError, with a reason for people, if it cannot be used."""
    import regex

    if (problem := _find_problem(pattern)) is not None:
        raise ValueError(problem)
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ValueError(f"found {pattern[:60]!r}, which is not a regular expression: {error}") from error
    except RecursionError as error:
        raise ValueError("not a regular expression that can be used: it nests too deep") from error


def search_pattern(pattern: str, text: str, seconds: float, *, ignore_case: bool = False) -> regex.Match[str] | None:
    """Return the first match of a pattern. Raises TimeoutError after `seconds`, ValueError as above."""
    return compile_pattern(pattern, ignore_case=ignore_case).search(text, timeout=seconds)


@lru_cache(maxsize=1024)
def _find_problem(pattern: str) -> str | None:
    """Return why a pattern is refused, or None."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has {len(pattern):,} characters, more than {MAX_PATTERN:,}"
    if _VERSION_1.search(pattern):
        return f"a pattern has the flag V, which is not supported: {pattern[:60]}"
    parts, nesting = _measure_at_worst(pattern) if _VERBOSE.search(pattern) else _measure(pattern)
    if parts > MAX_PARTS:
        return f"a pattern has more than {MAX_PARTS:,} parts with its repetitions written out: {pattern[:60]}"
    if nesting > MAX_NESTING:
        return f"a pattern has more than {MAX_NESTING} groups inside of one another: {pattern[:60]}"
    return None


def _measure_at_worst(pattern: str) -> tuple[int, int]:
    """Return an upper bound of parts and nesting of a pattern whose comments cannot be recognised."""
    return len(pattern) * prod(max(int(least[:9]), 1) for least in _LEAST.findall(pattern)), pattern.count("(")


def _measure(pattern: str) -> tuple[int, int]:
    """Return the parts, each repetition written out as often as it has to match at least, and how deep groups nest."""
    groups, last, nesting = [0], 0, 0
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                groups.append(1)
                nesting = max(nesting, len(groups) - 1)
                last = 0
            case "close" if len(groups) > 1:
                last = groups.pop()
                groups[-1] += last
            case "least":
                # Nine digits at most: Python refuses to read a number of thousands of digits.
                more = last * (min(int(token[3][:9]), MAX_PARTS + 1) - 1)
                groups[-1] += max(0, more)
                last += max(0, more)
            case "part" | "close":
                last = 1
                groups[-1] += 1
    return sum(groups), nesting


# JSONPath queries (RFC 9535) of case files over agents' files: bounded in nodes, in time, and in their patterns.
#
# `$..*..*..*` visits a node once for each way to it, and a filter's own query once for each node: a short query over a
# small text would run for days.


MAX_QUERY = 10_000
"""Characters of a query."""
MAX_NODES = 1_000_000
"""How many nodes are visited; each takes half a kilobyte."""
SECONDS = 2.0
"""How long a query may take, its patterns included."""


class _QueryBounds:
    """The bounds of one query: nodes and time that are left."""

    __slots__ = ("deadline", "nodes")

    def __init__(self) -> None:
        self.nodes, self.deadline = MAX_NODES, perf_counter() + SECONDS

    def visit(self) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise ValueError(f"the query visits more than {MAX_NODES:,} values; write one that names each step")
        if self.seconds() <= 0:
            raise ValueError(_TOO_LONG)

    def seconds(self) -> float:
        return self.deadline - perf_counter()


_TOO_LONG = f"the query takes over {SECONDS:g} s; write one that names each step, or a pattern that backtracks less"
_QUERY_BOUNDS: ContextVar[_QueryBounds] = ContextVar("left")


def select_values(query: str, value: Any) -> list[Any]:
    """Return the values that a query selects. Raises ValueError or the library's error for a wrong query."""
    if len(query) > MAX_QUERY:
        raise ValueError(f"the query has {len(query):,} characters, more than {MAX_QUERY:,}")
    before = _QUERY_BOUNDS.set(_QueryBounds())
    try:
        found: list[Any] = _environment().findall(query, value)
    except TimeoutError:
        raise ValueError(_TOO_LONG) from None
    except RecursionError:
        raise ValueError("the query nests too deep") from None
    finally:
        _QUERY_BOUNDS.reset(before)
    return found


@cache
def _environment() -> Any:
    """Return the library's environment, with nodes that are counted and patterns that end."""
    from jsonpath import JSONPathEnvironment, JSONPathMatch
    from jsonpath.function_extensions import Match, Search
    from jsonpath.parse import Parser
    from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment

    class Counted(JSONPathMatch):
        __slots__ = ()

        def __init__(self, **node: Any) -> None:
            _QUERY_BOUNDS.get().visit()
            super().__init__(**node)

    def count_children(node: Any) -> Any:
        """Return the node as one whose children are counted."""
        if isinstance(node, Counted):
            return node
        of = {name: getattr(node, name) for name in ("obj", "parent", "path", "parts", "root")}
        return Counted(filter_context=node.filter_context(), **of)

    class ChildSegment(JSONPathChildSegment):
        __slots__ = ()

        def resolve(self, nodes: Any) -> Any:
            return super().resolve(map(count_children, nodes))

    class DescentSegment(JSONPathRecursiveDescentSegment):
        __slots__ = ()

        def resolve(self, nodes: Any) -> Any:
            return super().resolve(map(count_children, nodes))

    class CountingParser(Parser):
        # `match_class` of an environment is for its asynchronous queries only (python-jsonpath 2.2.2): the first node
        # of all others is the library's, and the children of a node are of its class.
        def parse_query(self, stream: Any) -> Any:
            for segment in super().parse_query(stream):
                descends = isinstance(segment, JSONPathRecursiveDescentSegment)
                kind = DescentSegment if descends else ChildSegment
                yield kind(env=segment.env, token=segment.token, selectors=segment.selectors)

    class BoundedMatch(Match):
        def __call__(self, value: object, pattern: object) -> bool:
            return _matches(self, "fullmatch", value, pattern)

    class BoundedSearch(Search):
        def __call__(self, value: object, pattern: object) -> bool:
            return _matches(self, "search", value, pattern)

    class Environment(JSONPathEnvironment):
        parser_class = CountingParser

        def setup_function_extensions(self) -> None:
            super().setup_function_extensions()
            self.function_extensions |= {"match": BoundedMatch(), "search": BoundedSearch()}

    return Environment(strict=True)


def _matches(function: Any, method: str, value: object, pattern: object) -> bool:
    """Return whether the pattern's `method` finds a match in the value. Raises ValueError, and TimeoutError."""
    if not isinstance(value, str) or not isinstance(pattern, str):
        return False
    compile_pattern(pattern)
    compiled = function.check_cache(pattern)
    if compiled is None:
        return False
    return bool(getattr(compiled, method)(value, timeout=max(_QUERY_BOUNDS.get().seconds(), 0.001)))
