"""Check values by JSON Schemas. Schemas of files and servers and values of models are untrusted.

Nothing is fetched, and all work is bounded: schemas that refer to themselves, branches that multiply, and patterns that
backtrack for hours. A value that cannot be checked is reported so, and never counts against the agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import islice
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pytest_agentbench.bounded.patterns import search_pattern

if TYPE_CHECKING:
    from jsonschema import ValidationError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds for checking one value: applied keywords, seconds in total, seconds for patterns.

    Time is bounded in addition to steps, because a single keyword may visit a million items.
    """

    steps: int = 50_000
    seconds: float = 1.0
    pattern_seconds: float = 0.5


OF_ARGUMENTS = Bounds()
"""Bounds for arguments of tool calls."""
OF_ANSWERS = Bounds(steps=2_000_000, seconds=2.0, pattern_seconds=2.0)
"""Bounds for values of checks, which may be files of some megabytes."""
MAX_UNEVALUATED = 2_000
"""Items that `unevaluatedItems` and `unevaluatedProperties` go through: the library compares each with all others."""
MAX_SCHEMA = 1_000_000
"""Characters of a schema: to compile it cannot be interrupted."""

_TOO_MUCH = "checking this value takes too long, or nests too deep"
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""


class UncheckableError(Exception):
    """The value cannot be checked by the schema. The text is the reason."""


class BoundedSchema:
    """A JSON Schema of the draft that its `$schema` names (default: 2020-12), compiled. Formats are not asserted.

    `problem` is the reason why the schema is unusable (malformed, or with references to other documents), or None.
    """

    def __init__(self, schema: Any, problem: str | None = None) -> None:
        self.problem = problem
        try:
            self._make_validator = _make_validator(schema)
        except RecursionError:
            self.problem = "it nests too deep"
        except Exception as error:  # noqa: BLE001 - any error of an untrusted schema is the finding
            self.problem = _describe_error(error)

    def accepts(self, value: Any, bounds: Bounds = OF_ARGUMENTS) -> bool:
        """Return whether the value satisfies the schema. Raises UncheckableError if it cannot be checked."""
        with self._within(bounds):
            return bool(self._make_validator.is_valid(value))

    def first_errors(self, value: Any, count: int) -> list[ValidationError]:
        """Return the first `count` errors of the value. Raises UncheckableError like `accepts`."""
        with self._within(OF_ARGUMENTS):
            return list(islice(self._make_validator.iter_errors(value), count))

    def best_error(self, value: Any) -> ValidationError | None:
        """Return the most relevant error of the value, or None. Raises UncheckableError like `accepts`."""
        from jsonschema.exceptions import best_match

        with self._within(OF_ANSWERS):
            found: ValidationError | None = best_match(self._make_validator.iter_errors(value))
            return found

    @contextmanager
    def _within(self, bounds: Bounds) -> Iterator[None]:
        """Apply the bounds inside of the block, and describe errors there."""
        if self.problem is not None:
            raise UncheckableError(self.problem)
        # The library fixes the signature of keywords, so the bounds are passed in a context variable
        before = _LIMITS.set(_Limits(bounds))
        try:
            yield
        except (_OutOfBounds, TimeoutError, RecursionError):
            raise UncheckableError(_TOO_MUCH) from None
        except Exception as error:  # noqa: BLE001 - as above: a pattern, for one, is read when it is used
            raise UncheckableError(_describe_error(error)) from None
        finally:
            _LIMITS.reset(before)


def bounded_schema(schema: Mapping[str, Any]) -> BoundedSchema:
    """Compile a schema, once for all that have the same content."""
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return BoundedSchema(schema)  # no JSON: a plugin's, or nested too deep
    if len(text) > MAX_SCHEMA:
        return BoundedSchema({}, f"it has {len(text):,} characters, more than {MAX_SCHEMA:,}")
    return _compile(text)


@lru_cache(maxsize=4096)
def _compile(text: str) -> BoundedSchema:
    return BoundedSchema(json.loads(text))


class _OutOfBounds(Exception):
    """The steps or the time are used up."""


class _Limits:
    """The bounds that are left for one value."""

    __slots__ = ("deadline", "pattern_seconds", "steps")

    def __init__(self, bounds: Bounds) -> None:
        self.steps = bounds.steps
        self.pattern_seconds = bounds.pattern_seconds
        self.deadline = perf_counter() + bounds.seconds

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _OutOfBounds
        self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        if perf_counter() > self.deadline:
            raise _OutOfBounds

    def found(self, pattern: str, text: str) -> bool:
        self.look_at_the_clock()
        started = perf_counter()
        try:
            return search_pattern(pattern, text, max(self.pattern_seconds, 0.001)) is not None
        finally:
            self.pattern_seconds -= perf_counter() - started


_LIMITS: ContextVar[_Limits] = ContextVar("limits")


def _make_validator(schema: Any) -> Any:
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    draft: Any = validator_for(schema, default=Draft202012Validator)
    # jsonschema accepts malformed schemas, whose keywords raise arbitrary errors later
    if (error := next(_metaschema(draft).iter_errors(schema), None)) is not None:
        raise ValueError(f"{error.json_path}: {error.message}")
    schema = _drop_draft(schema)
    _require_closed(draft, schema)
    return _bound_keywords(draft)(schema, registry=EMPTY_REGISTRY)


@lru_cache(maxsize=16)
def _metaschema(draft: Any) -> Any:
    """Return the validator of schemas of the draft.

    Later drafts spread theirs over vocabularies that refer to each other dynamically; in one document it is five times
    as fast.
    """
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import EMPTY_REGISTRY

    whole = draft.META_SCHEMA
    vocabularies = [REGISTRY.contents(urljoin(whole["$id"], each["$ref"])) for each in whole.get("allOf", ())]
    if not vocabularies:
        return draft(whole, registry=EMPTY_REGISTRY)
    joined: dict[str, Any] = {"type": whole["type"], "properties": {}, "$defs": {}}
    for each in (whole, *vocabularies):
        joined["properties"] |= each.get("properties", {})
        joined["$defs"] |= each.get("$defs", {})
    text = re.sub(r'"\$(?:dynamicRef|recursiveRef)": "#(?:meta)?"', '"$ref": "#"', json.dumps(joined))
    text = re.sub(r'"\$ref": "meta/[a-z]+#', '"$ref": "#', text)
    return draft(json.loads(text), registry=EMPTY_REGISTRY)


def _drop_draft(schema: Any) -> Any:
    """Return the schema without `$schema`, which would make the library use its own keywords without bounds."""
    if isinstance(schema, list):
        return [_drop_draft(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in _VALUES else _drop_draft(value)
        for name, value in schema.items()
        if name != "$schema" or not isinstance(value, str)
    }


def _require_closed(draft: Any, schema: Any) -> None:
    """Raise an error for references that lead nowhere or elsewhere, and for unbounded combinations of keywords."""
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    root = specification_with(draft.ID_OF(draft.META_SCHEMA)).create_resource(schema)
    waiting = [(root, REGISTRY.resolver_with_root(root))]
    used: set[str] = set()
    while waiting:
        resource, resolver = waiting.pop()
        if isinstance(resource.contents, dict):
            used |= resource.contents.keys()
            for name in ("$ref", "$dynamicRef"):
                if isinstance(reference := resource.contents.get(name), str):
                    try:
                        resolver.lookup(reference)
                    except Unresolvable:
                        raise ValueError(f"{name} {reference[:100]} is not in it, and nothing is fetched") from None
            waiting += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
    if {"unevaluatedProperties", "patternProperties"} <= used:
        raise ValueError("unevaluatedProperties together with patternProperties is not supported")


@lru_cache(maxsize=16)
def _bound_keywords(draft: Any) -> Any:
    """Return the draft's validator with keywords that keep the limits, and with exact arithmetic."""
    from jsonschema import validators

    ours: dict[str, Callable[..., Any]] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        # The library compares all pairs of items that cannot be sorted; hashed, they take time linear in their number.
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
        "divisibleBy": _multiple_of,
    }
    for name in _UNEVALUATED & draft.VALIDATORS.keys():
        ours[name] = partial(_unevaluated, draft.VALIDATORS[name])
    keywords = {name: ours.get(name, keyword) for name, keyword in draft.VALIDATORS.items()}
    create: Any = validators.create  # the stubs leave it untyped
    return create(
        meta_schema=draft.META_SCHEMA,
        validators={name: partial(_step, keyword) for name, keyword in keywords.items()},
        type_checker=draft.TYPE_CHECKER,
        id_of=draft.ID_OF,
        # A private name of jsonschema 4.26.0: in older drafts a `$ref` hides its siblings, which only that function
        # knows.
        applicable_validators=partial(_apply, draft._APPLICABLE_VALIDATORS),
    )


def _apply(keywords_of: Callable[[Any], Any], schema: Any) -> Any:
    """Look at the clock before a schema is applied, also one without keywords, as of the items of any list."""
    if (limits := _LIMITS.get(None)) is not None:
        limits.look_at_the_clock()
    return keywords_of(schema)


def _step(keyword: Callable[..., Any], validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    _LIMITS.get().step()
    return keyword(validator, value, instance, schema)


def _unevaluated(keyword: Callable[..., Any], validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    if isinstance(instance, list | dict) and len(instance) > MAX_UNEVALUATED:
        raise _OutOfBounds
    return keyword(validator, value, instance, schema)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _LIMITS.get().found(pattern, instance):
        yield _make_error(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _LIMITS.get().found(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = (
        name
        for name in instance
        if name not in named and not any(_LIMITS.get().found(pattern, name) for pattern in patterns)
    )
    if allowed is not False:
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif found := sorted(extras):
        verb = "was" if len(found) == 1 else "were"
        yield _make_error(f"Additional properties are not allowed ({', '.join(map(repr, found))} {verb} unexpected)")


def _unique_items(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if unique and validator.is_type(instance, "array") and len({*map(_freeze, instance)}) < len(instance):
        yield _make_error(f"{instance!r} has non-unique elements")


def _multiple_of(validator: Any, factor: float, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "number") and not _is_multiple(instance, factor):
        yield _make_error(f"{instance!r} is not a multiple of {factor}")


def _is_multiple(number: float, factor: float) -> bool:
    """Return whether it is a multiple by the decimal numbers that both are written as: 0.29 is one of 0.01."""
    if isinstance(number, float) and not isfinite(number):
        return False
    return (_decimal(number) / _decimal(factor)).denominator == 1


def _decimal(number: float) -> Fraction:
    if isinstance(number, int):
        return Fraction(number)
    return Fraction(repr(number))


def _freeze(value: Any) -> Any:
    """Return a hashable value, equal where JSON values are: 1 equals 1.0, but true is no number."""
    if isinstance(value, dict):
        return frozenset((name, _freeze(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    if isinstance(value, bool):
        return (value,)
    return value


def _make_error(message: str) -> Exception:
    from jsonschema import ValidationError

    return ValidationError(message)


def _describe_error(error: Exception) -> str:
    """Return an error in one line."""
    first = next(iter(str(error).splitlines()), "")
    if type(error) is ValueError:
        return first[:200]
    return f"{type(error).__name__}: {first[:200]}".removesuffix(": ")
