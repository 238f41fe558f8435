"""Convert promptfoo's assertions to checks, expectations and references. Code, and types without a counterpart,
cannot be converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.config.documents import parse_yaml
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import MUST_NOT, nonblank_text

_ESCAPE = r"\\(?:x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}|k<[A-Za-z_]\w*>|[bBdDfnrsStvwW]|[^A-Za-z])"
_GROUP = r"\(\?(?:[:=!]|<[=!]|<[A-Za-z_]\w*>|-?i:)"
_QUANTIFIER = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?])"
# `same` matches only syntax with the same meaning in both languages. Syntax that matches no group is refused, never
# guessed.
_OUTSIDE = re.compile(
    rf"(?P<same>{_ESCAPE}|{_GROUP}|{_QUANTIFIER}|\((?!\?)|[^\\(*+?{{$\[])|(?P<open>\[\^?)|(?P<brace>\{{(?!\d+(?:,\d*)?\}}))|(?P<end>\$)"
)
_INSIDE = re.compile(rf"(?P<same>{_ESCAPE}|[^\\\[\]])|(?P<bracket>\[)|(?P<close>\])")
_OF_ASCII = re.compile(r"\\[bBdDwW]")
# JavaScript's \s matches the white space of Unicode, while \d, \w and \b match only ASCII.
_SPACES = r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACES_WITHIN = {r"\s": _SPACES}
_SPACES_OUTSIDE = {r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]"}


def python_pattern(pattern: str) -> tuple[str, str]:
    r"""Convert a JavaScript pattern to Python. Return the flags (a text to put in front), and the pattern.

    In JavaScript `$` is the very end, `\d`, `\w` and `\b` are ASCII only, and braces without a count are literal.

    :raises ValueError: the pattern is invalid in JavaScript, or has no counterpart.
    """
    pieces: list[str] = []
    syntax, at = _OUTSIDE, 0
    while at < len(pattern):
        match = syntax.match(pattern, at)
        if match is None:
            raise ValueError(f"{pattern[at : at + 12]!r} is not the same in Python, or invalid in JavaScript")
        at = match.end()
        if match.lastgroup == "open" and pattern.startswith("]", at):
            # JavaScript allows an empty class; in Python a `]` right after `[` is a literal.
            pieces.append(_EMPTY_CLASSES[match[0]])
            at += 1
            continue
        if match.lastgroup == "open":
            syntax = _INSIDE
        elif match.lastgroup == "close":
            syntax = _OUTSIDE
        pieces.append(_AS.get(match.lastgroup or "", match[0]))
    if syntax is _INSIDE:
        raise ValueError("a [ has no ]")
    if not any(map(_OF_ASCII.fullmatch, pieces)):
        return "", "".join(pieces)
    return "(?a)", "".join(_name_spaces(pieces))


_AS = {"brace": r"\{", "end": r"\Z", "bracket": r"\["}
_EMPTY_CLASSES = {"[": "(?!)", "[^": r"[\s\S]"}
"""JavaScript's classes without a character: `[]` matches nothing, `[^]` everything."""


def _name_spaces(pieces: list[str]) -> Iterator[str]:
    """Yield the pieces with the white space of Unicode spelled out, because Python's flag `a` leaves it out."""
    within = False
    for piece in pieces:
        within = (within and piece != "]") or piece in ("[", "[^")
        yield (_SPACES_WITHIN if within else _SPACES_OUTSIDE).get(piece, piece)


_PREFIX = "not-"
_CODE = {"javascript", "python", "ruby", "webhook"}
_IGNORED = ("metric", "weight", "type", "value", "threshold", "$ref")
_CELL = re.compile(r'[\s,]*+(?:"((?:\\["\\]|""|[^"])*+)"\s*(?=,|\Z)|([^",][^,]*))')
_DRAFT_07 = "http://json-schema.org/draft-07/schema#"


class UnmappedError(Exception):
    """An assertion has no counterpart; the text is the reason."""


@dataclass
class Criteria:
    """Checks, metrics and expectations that decide a case."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    expectations: list[dict[str, Any]] = field(default_factory=list)
    reference: str | None = None


@dataclass(frozen=True)
class _Assertion:
    """An assertion; the variables in its `value` are filled in. `negated` if the type began with `not-`."""

    kind: str
    negated: bool
    value: Any
    threshold: Any
    weight: Any

    def texts(self) -> list[str]:
        """Return the value as non-empty texts; a type with several values takes a list or commas."""
        several = self.kind.endswith(("-all", "-any"))
        value = self.value
        values: list[Any] = [value]
        if isinstance(value, str) and several:
            # promptfoo splits a text at commas only for the types that take several.
            values = _split_commas(value)
        elif isinstance(value, list) and (several or self.kind in _GRADED):
            values = value
        texts = [str(text) for text in values if isinstance(text, str | int | float) and not isinstance(text, bool)]
        if not texts or len(texts) < len(values) or not all(texts):
            raise UnmappedError(f"found the value {value!r:.60}, expected {'texts' if several else 'a text'}")
        return texts

    def text(self) -> str:
        """Return the value as one text that is not blank."""
        texts = self.texts()
        if len(texts) != 1 or not texts[0].strip():
            raise UnmappedError(f"found the value {self.value!r:.60}, expected a text")
        return texts[0]

    def number(self, unit: str) -> float:
        """Return the threshold as a number of at least 0."""
        if not isinstance(self.threshold, int | float) or isinstance(self.threshold, bool) or self.threshold < 0:
            raise UnmappedError(f"found the threshold {self.threshold!r}, expected {unit}")
        return float(self.threshold)

    def choose(self, positive: str, negated: str) -> str:
        """Return `negated` for a type that begins with `not-`, else `positive`."""
        if self.negated:
            return negated
        return positive


def parse_assertion(text: str) -> dict[str, Any]:
    """Return the assertion of a table's cell: `contains: x`, `not-icontains: x`, `similar(0.8): x`, or a text."""
    text = text.strip()
    head, _, rest = text.partition(":")
    if head in ("fn", "eval"):
        return {"type": "javascript", "value": rest.strip()}
    if head == "grade":
        return {"type": "llm-rubric", "value": rest.strip()}
    match = _FROM_TEXT.fullmatch(text)
    if match is None:
        return {"type": "equals", "value": text}
    assertion: dict[str, Any] = {"type": f"{match[1] or ''}{match[2]}", "value": (match[4] or "").strip() or None}
    if match[3] is not None:
        assertion["threshold"] = float(match[3])
    return assertion


def add_assertion(assertion: Mapping[str, Any], value: Any, criteria: Criteria) -> list[str]:
    """Add the counterpart of an assertion with its filled-in `value` to `criteria`. Return notes on missing parts.

    :raises UnmappedError: the assertion has no counterpart.
    """
    type_name = str(assertion.get("type"))
    kind = type_name.removeprefix(_PREFIX)
    if kind in _CODE or assertion.get("transform") is not None or assertion.get("contextTransform") is not None:
        raise UnmappedError(f"{type_name} is code, which is not run; write a check or a Python hook")
    if kind not in _MAPPED:
        raise UnmappedError(f"{type_name} has no counterpart{_HINTS.get(kind, '')}")
    weight = assertion.get("weight", 1)
    if weight == 0:
        raise UnmappedError(f"{type_name} has weight 0, so it decides nothing; every check here decides")
    parsed = _Assertion(kind, type_name != kind, value, assertion.get("threshold"), weight)
    # An assertion may become several checks, all of which get its name.
    before = len(criteria.checks)
    notes = _MAPPED[kind](parsed, criteria) or ()
    if (name := nonblank_text(assertion.get("metric"))) is not None:
        for check in criteria.checks[before:]:
            check["description"] = name
    return [*notes, *_list_left_out(parsed, assertion)]


def _list_left_out(parsed: _Assertion, assertion: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(assertion.keys() - set(_IGNORED)):
        yield f"{name} of {parsed.kind} is left out"
    if parsed.kind in _GRADED and parsed.threshold is not None:
        yield f"threshold of {parsed.kind} is left out: an expectation is met or not"
    if parsed.kind not in _GRADED and parsed.weight != 1:
        yield f"weight of {parsed.kind} is left out: every check decides"


def _add_check(criteria: Criteria, **declarative: Any) -> None:
    criteria.checks.append({"declarative": declarative})


def _add_text_check(assertion: _Assertion, criteria: Criteria, check: dict[str, Any]) -> None:
    _add_check(criteria, **({"kind": "not", "check": check} if assertion.negated else check))


def _add_contains(assertion: _Assertion, criteria: Criteria) -> None:
    """Add `contains`, `icontains`, and both with `-any` and `-all`."""
    kind, _, several = assertion.kind.partition("-")
    checks = [{"kind": kind, "text": text} for text in assertion.texts()]
    if len(checks) == 1:
        _add_text_check(assertion, criteria, checks[0])
    else:
        _add_text_check(assertion, criteria, {"kind": f"{several}_of", "checks": checks})


def _add_starts_with(assertion: _Assertion, criteria: Criteria) -> None:
    _add_text_check(assertion, criteria, {"kind": "starts_with", "text": assertion.text()})


def _add_regex(assertion: _Assertion, criteria: Criteria) -> None:
    source = assertion.text()
    try:
        flags, pattern = python_pattern(source)
        compile_pattern(flags + pattern)
    except ValueError as error:
        raise UnmappedError(f"the pattern {source!r:.60} cannot be converted: {error}") from error
    _add_text_check(assertion, criteria, {"kind": "regex_match", "pattern": flags + pattern})


def _add_equals(assertion: _Assertion, criteria: Criteria) -> None:
    if isinstance(assertion.value, dict | list):
        if assertion.negated:
            raise UnmappedError("not-equals of an object has no counterpart")
        _add_schema(criteria, {"const": assertion.value})
        return
    # promptfoo compares with the text "true", as JavaScript writes it.
    text = str(assertion.value).lower() if isinstance(assertion.value, bool) else assertion.text()
    _add_text_check(assertion, criteria, {"kind": "equals", "text": text})


def _add_is_json(assertion: _Assertion, criteria: Criteria) -> Sequence[str]:
    if assertion.negated:
        raise UnmappedError("not-is-json has no counterpart")
    schema = assertion.value
    if isinstance(schema, str):
        try:
            schema = parse_yaml(schema.encode(), Path("its schema")).data
        except ConfigError as error:
            raise UnmappedError(str(error)) from error
    if not isinstance(schema, dict | None):
        raise UnmappedError(f"found {schema!r:.60}, expected a JSON Schema")
    _add_schema(criteria, schema or {})
    if _has_format(schema):
        return ("format of its schema is left out: formats are not checked here",)
    return ()


def _add_schema(criteria: Criteria, schema: Mapping[str, Any]) -> None:
    """Add a check by a schema. promptfoo reads draft 7 and, unlike ours, accepts no JSON inside a code fence."""
    _add_check(criteria, kind="json_schema", schema={"$schema": _DRAFT_07, **schema})
    fence = {"kind": "regex_match", "pattern": r"(?m)^[ \t]*```"}
    criteria.checks.append({"description": "no code fence", "declarative": {"kind": "not", "check": fence}})


def _has_format(schema: Any) -> bool:
    """Return whether a schema has the keyword `format` at any depth; a property of that name has no text."""
    if isinstance(schema, dict):
        return isinstance(schema.get("format"), str) or any(map(_has_format, schema.values()))
    return isinstance(schema, list) and any(map(_has_format, schema))


def _add_rubric(assertion: _Assertion, criteria: Criteria) -> None:
    weight = assertion.weight
    if not isinstance(weight, int | float) or isinstance(weight, bool) or weight < 0:
        raise UnmappedError(f"found the weight {weight!r}, expected a number of at least 0")
    for text in assertion.texts():
        expectation: dict[str, Any] = {"text": assertion.choose(text, f"{MUST_NOT}{text}")}
        if weight != 1:
            expectation["weight"] = float(weight)
        criteria.expectations.append(expectation)


def _add_reference(assertion: _Assertion, criteria: Criteria) -> None:
    _refuse_negated(assertion)
    if criteria.reference is not None:
        raise UnmappedError(f"a second {assertion.kind} has no counterpart")
    criteria.reference = assertion.text()


def _add_cost(assertion: _Assertion, criteria: Criteria) -> None:
    _refuse_negated(assertion)
    _add_check(criteria, kind="max_cost_usd", usd=assertion.number("dollars"))


def _add_latency(assertion: _Assertion, criteria: Criteria) -> None:
    _refuse_negated(assertion)
    seconds = assertion.number("milliseconds") / 1000
    if seconds == 0:
        raise UnmappedError("found the threshold 0, expected milliseconds")
    _add_check(criteria, kind="max_seconds", seconds=seconds)


def _refuse_negated(assertion: _Assertion) -> None:
    if assertion.negated:
        raise UnmappedError(f"not-{assertion.kind} has no counterpart")


def _add_tool_used(assertion: _Assertion, criteria: Criteria) -> None:
    checks: list[dict[str, Any]] = []
    for tool in assertion.value if isinstance(assertion.value, list) else [assertion.value]:
        if isinstance(tool, str):
            tool = {"name": tool}
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or tool.keys() - {"name", "min"}:
            raise UnmappedError(f"found {tool!r:.60}, expected the name of a tool, and at most min in addition")
        count = tool.get("min", 1)
        # True is an int, too.
        if type(count) is not int or count < 1 or (assertion.negated and "min" in tool):
            raise UnmappedError(f"found min {count!r}, expected a number of calls")
        if set("*?") & set(tool["name"]):
            raise UnmappedError(f"found {tool['name']!r:.60}, a pattern of names; name each tool")
        check = {"kind": assertion.choose("tool_called", "tool_not_called"), "name": tool["name"]}
        if count > 1:
            check["min_count"] = count
        checks.append(check)
    for check in checks:
        _add_check(criteria, **check)


def _add_skill_used(assertion: _Assertion, criteria: Criteria) -> None:
    """Add a check for each skill. A negated one accepts no use: of any skill of a list, and without other bounds."""
    checks: list[dict[str, Any]] = []
    for skill in assertion.value if isinstance(assertion.value, list) else [assertion.value]:
        fields = {"name": skill} if isinstance(skill, str) else skill
        if not isinstance(fields, dict) or fields.keys() - {"name", "pattern", "min", "max"}:
            raise UnmappedError(f"found {skill!r:.60}, expected a skill's name, or name or pattern, min and max")
        if sum(isinstance(fields.get(key), str) for key in ("name", "pattern")) != 1:
            raise UnmappedError(f"found {skill!r:.60}, expected exactly one of name and pattern")
        bounds = {key: fields[key] for key in ("min", "max") if key in fields}
        if any(type(bound) is not int or bound < 0 for bound in bounds.values()):
            raise UnmappedError(f"found {skill!r:.60}, expected whole numbers as bounds")
        if assertion.negated:
            if bounds not in ({}, {"max": 0}):
                raise UnmappedError(f"found {skill!r:.60}, expected no bounds but max: 0 after not-")
            bounds = {"min": 0, "max": 0}
        elif bounds.get("max") == 0:
            bounds.setdefault("min", 0)
        named = {"name": fields["name"]} if "name" in fields else {"pattern": rf"\A{translate(fields['pattern'])}"}
        checks.append({"kind": "skill_used", **named, **bounds})
    for check in checks:
        _add_check(criteria, **check)


def _split_commas(text: str) -> list[str]:
    """Return the texts between commas. Double quotes may enclose commas, and quotes that are doubled or escaped."""
    text = text.rstrip(", \t\r\n")
    cells, at = [], 0
    while at < len(text):
        match = _CELL.match(text, at)
        if match is None:
            raise UnmappedError(f"{text!r:.60} is not a list with commas: a quote is not closed")
        quoted, plain = match.groups()
        if quoted is None:
            cells.append(plain.strip())
        else:
            cells.append(re.sub(r'\\(["\\])|"(")', r"\1\2", quoted))
        at = match.end()
    return cells


_GRADED = ("llm-rubric", "g-eval", "model-graded-closedqa")
_MAPPED: dict[str, Callable[[_Assertion, Criteria], Sequence[str] | None]] = {
    **dict.fromkeys(("contains", "icontains"), _add_contains),
    **dict.fromkeys(("contains-any", "icontains-any", "contains-all", "icontains-all"), _add_contains),
    **dict.fromkeys(_GRADED, _add_rubric),
    **dict.fromkeys(("factuality", "model-graded-factuality"), _add_reference),
    "starts-with": _add_starts_with,
    "regex": _add_regex,
    "equals": _add_equals,
    "is-json": _add_is_json,
    "cost": _add_cost,
    "latency": _add_latency,
    "skill-used": _add_skill_used,
    "trajectory:tool-used": _add_tool_used,
}
_HINTS = {
    "contains-json": "; the check json_schema accepts JSON, fenced or not",
    "similar": "; the metric llm_judgement asks a model whether the meaning is the same",
    "bleu": "; the metric bleu_score is another BLEU, so its thresholds differ",
    "rouge-n": "; the metric rouge_score is ROUGE-L",
    "levenshtein": "; the metric similarity is difflib's ratio",
    "trajectory:tool-args-match": "; the check tool_called takes arguments",
    "trajectory:step-count": "; the checks max_turns and tool_call_count count",
    "human": "; `agentbench review` asks people",
}
_OTHERS = (
    "agent-rubric answer-relevance classifier contains-html contains-sql contains-xml context-faithfulness "
    "context-recall context-relevance conversation-relevance finish-reason gleu guardrails is-html is-refusal "
    "is-sql is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call is-xml pi meteor "
    "moderation perplexity perplexity-score similar:cosine similar:dot similar:euclidean tool-call-f1 "
    "trajectory:goal-success trajectory:tool-sequence trace-error-spans trace-span-count trace-span-duration "
    "search-rubric word-count "
)
_KNOWN = frozenset({*_MAPPED, *_HINTS, *_CODE, *_OTHERS.split()})
"""All assertion types that a text may begin with; another text is the expected answer."""
_FROM_TEXT = re.compile(
    rf"(not-)?({'|'.join(sorted(map(re.escape, _KNOWN), key=len, reverse=True))})"
    r"(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?"
)
