"""JSONPath queries (RFC 9535) of case files over what agents wrote: bounded in nodes, in time, and in their patterns.

`$..*..*..*` visits a node once for each way to it, and a filter's own query once for each node: a short query over a
small text would run for days.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from time import perf_counter
from typing import Any

from pytest_agentbench.bounded.patterns import compile_pattern

MAX_QUERY = 10_000
"""Characters of a query."""
MAX_NODES = 1_000_000
"""How many nodes are visited; each takes half a kilobyte."""
SECONDS = 2.0
"""How long a query may take, its patterns included."""


class _Left:
    """What is left for one query."""

    __slots__ = ("deadline", "nodes")

    def __init__(self) -> None:
        self.nodes, self.deadline = MAX_NODES, perf_counter() + SECONDS

    def visit(self) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise ValueError(f"the query visits more than {MAX_NODES:,} values; write one that names its way")
        if self.seconds() <= 0:
            raise ValueError(_TOO_LONG)

    def seconds(self) -> float:
        return self.deadline - perf_counter()


_TOO_LONG = f"the query takes over {SECONDS:g} s; write one that names its way, or a pattern that backtracks less"
_LEFT: ContextVar[_Left] = ContextVar("left")


def select_values(query: str, value: Any) -> list[Any]:
    """List the values that a query selects. Raises ValueError, or the library's error, where that cannot be told."""
    if len(query) > MAX_QUERY:
        raise ValueError(f"the query has {len(query):,} characters, more than {MAX_QUERY:,}")
    before = _LEFT.set(_Left())
    try:
        found: list[Any] = _environment().findall(query, value)
    except TimeoutError:
        raise ValueError(_TOO_LONG) from None
    except RecursionError:
        raise ValueError("the query nests too deep") from None
    finally:
        _LEFT.reset(before)
    return found


@cache
def _environment() -> Any:
    """The library's own, with nodes that are counted and patterns that end."""
    from jsonpath import JSONPathEnvironment, JSONPathMatch
    from jsonpath.function_extensions import Match, Search
    from jsonpath.parse import Parser
    from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment

    class Counted(JSONPathMatch):
        __slots__ = ()

        def __init__(self, **node: Any) -> None:
            _LEFT.get().visit()
            super().__init__(**node)

    def counted(node: Any) -> Any:
        """Return the node as one whose children are counted."""
        if isinstance(node, Counted):
            return node
        of = {name: getattr(node, name) for name in ("obj", "parent", "path", "parts", "root")}
        return Counted(filter_context=node.filter_context(), **of)

    class ChildSegment(JSONPathChildSegment):
        __slots__ = ()

        def resolve(self, nodes: Any) -> Any:
            return super().resolve(map(counted, nodes))

    class DescentSegment(JSONPathRecursiveDescentSegment):
        __slots__ = ()

        def resolve(self, nodes: Any) -> Any:
            return super().resolve(map(counted, nodes))

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
            compiled = _checked(self, value, pattern)
            return compiled is not None and bool(compiled.fullmatch(value, timeout=max(_LEFT.get().seconds(), 0.001)))

    class BoundedSearch(Search):
        def __call__(self, value: object, pattern: object) -> bool:
            compiled = _checked(self, value, pattern)
            return compiled is not None and bool(compiled.search(value, timeout=max(_LEFT.get().seconds(), 0.001)))

    class Environment(JSONPathEnvironment):
        parser_class = CountingParser

        def setup_function_extensions(self) -> None:
            super().setup_function_extensions()
            self.function_extensions |= {"match": BoundedMatch(), "search": BoundedSearch()}

    return Environment(strict=True)


def _checked(function: Any, value: object, pattern: object) -> Any:
    """The pattern as the library compiles it; None where nothing is to be matched. Raises ValueError."""
    if not isinstance(value, str) or not isinstance(pattern, str):
        return None
    compile_pattern(pattern)
    return function.check_cache(pattern)
