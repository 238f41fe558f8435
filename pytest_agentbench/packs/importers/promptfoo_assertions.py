"""Convert promptfoo's assertions to checks, expectations and references. Code, and types without counterpart, are
lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.config.documents import parse_yaml
from pytest_agentbench.errors import ConfigError

_ESCAPE = r"\\(?:x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}|k<[A-Za-z_]\w*>|[bBdDfnrsStvwW]|[^A-Za-z])"
_GROUP = r"\(\?(?:[:=!]|<[=!]|<[A-Za-z_]\w*>|-?i:)"
_QUANTIFIER = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?])"
# `same` matches only syntax that both languages read alike. Syntax that matches no group is refused, never
# guessed.
_OUTSIDE = re.compile(
    rf"(?P<same>{_ESCAPE}|{_GROUP}|{_QUANTIFIER}|\((?!\?)|[^\\(*+?{{$\[])|(?P<open>\[\^?)|(?P<brace>\{{(?!\d+(?:,\d*)?\}}))|(?P<end>\$)"
)
_INSIDE = re.compile(rf"(?P<same>{_ESCAPE}|[^\\\[\]])|(?P<bracket>\[)|(?P<close>\])")
_OF_ASCII = re.compile(r"\\[bBdDwW]")
# JavaScript's \s: it knows the white space of Unicode, where \d, \w and \b know ASCII alone.
_SPACES = r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def python_pattern(pattern: str) -> tuple[str, str]:
    r"""Return the flags (a text to put in front) and the pattern with which Python finds the matches of a JavaScript
    pattern.

    In JavaScript `$` is the very end, `\d`, `\w` and `\b` are ASCII only, and braces without a count are literal.

    :raises ValueError: it is invalid in JavaScript, or has no counterpart.
    """
    pieces: list[str] = []
    within, at = False, 0
    while at < len(pattern):
        match = (_INSIDE if within else _OUTSIDE).match(pattern, at)
        if match is None:
            raise ValueError(f"{pattern[at : at + 12]!r} is not the same in Python, or nothing in JavaScript")
        at = match.end()
        if match.lastgroup == "open" and pattern.startswith("]", at):
            # JavaScript allows an empty class; in Python a `]` right after `[` is a literal.
            pieces.append("(?!)" if match[0] == "[" else r"[\s\S]")  # [] is nothing, [^] everything
            at += 1
        else:
            within = match.lastgroup == "open" or (within and match.lastgroup != "close")
            pieces.append(_AS.get(match.lastgroup or "", match[0]))
    if within:
        raise ValueError("a [ has no ]")
    if not any(map(_OF_ASCII.fullmatch, pieces)):
        return "", "".join(pieces)
    return "(?a)", "".join(_name_spaces(pieces))


_AS = {"brace": r"\{", "end": r"\Z", "bracket": r"\["}


def _name_spaces(pieces: list[str]) -> list[str]:
    """Return the pieces with the white space of Unicode named, which ASCII leaves out and JavaScript does not."""
    within, named = False, []
    for piece in pieces:
        within = (within and piece != "]") or piece in ("[", "[^")
        spaces = _SPACES if within else f"[{_SPACES}]"
        named.append(spaces if piece == r"\s" else f"[^{_SPACES}]" if piece == r"\S" and not within else piece)
    return named


_PREFIX = "not-"
_CODE = {"javascript", "python", "ruby", "webhook"}
_IGNORED = ("metric", "weight", "type", "value", "threshold", "$ref")
_MUST_NOT = "It must not be so that: "
_CELL = re.compile(r'[\s,]*+(?:"((?:\\["\\]|""|[^"])*+)"\s*(?=,|\Z)|([^",][^,]*))')
_DRAFT_07 = "http://json-schema.org/draft-07/schema#"


class UnmappedError(Exception):
    """Reason why an assertion has no counterpart."""


@dataclass
class Criteria:
    """Checks, metrics and expectations that decide a case."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    expectations: list[dict[str, Any]] = field(default_factory=list)
    reference: str | None = None


@dataclass(frozen=True)
class _Assertion:
    """Assertion whose `value` has its variables filled in; `negated` if the type began with `not-`."""

    kind: str
    negated: bool
    value: Any
    threshold: Any
    weight: Any

    def texts(self) -> list[str]:
        """Return the value as non-empty texts; a type with several values takes a list or commas."""
        several = self.kind.endswith(("-all", "-any"))
        value = self.value
        if isinstance(value, str):
            # promptfoo splits a text at commas only for the types that take several.
            values: list[Any] = _split_commas(value) if several else [value]
        elif isinstance(value, list) and (several or self.kind in _GRADED):
            values = value
        else:
            values = [value]
        texts = [str(each) for each in values if isinstance(each, str | int | float) and not isinstance(each, bool)]
        if not texts or len(texts) < len(values) or not all(texts):
            raise UnmappedError(f"found the value {value!r:.60}, expected {'texts' if several else 'a text'}")
        return texts

    def text(self) -> str:
        """Return the value as one text that is not blank."""
        texts = self.texts()
        if len(texts) != 1 or not texts[0].strip():
            raise UnmappedError(f"found the value {self.value!r:.60}, expected a text")
        return texts[0]

    def number(self, what: str) -> float:
        """Return the threshold as a number."""
        if not isinstance(self.threshold, int | float) or isinstance(self.threshold, bool) or self.threshold < 0:
            raise UnmappedError(f"found the threshold {self.threshold!r}, expected {what}")
        return float(self.threshold)


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
    threshold = {} if match[3] is None else {"threshold": float(match[3])}
    return {"type": f"{match[1] or ''}{match[2]}", "value": (match[4] or "").strip() or None, **threshold}


def add_assertion(assertion: Mapping[str, Any], value: Any, decided: Criteria) -> list[str]:
    """Add the counterpart of an assertion, whose `value` is filled in. Return notes on its missing parts.

    :raises UnmappedError: the assertion has no counterpart.
    """
    given = str(assertion.get("type"))
    kind = given.removeprefix(_PREFIX)
    if kind in _CODE or assertion.get("transform") is not None or assertion.get("contextTransform") is not None:
        raise UnmappedError(f"{given} is code, which is not run; write a check or a Python hook")
    if kind not in _MAPPED:
        raise UnmappedError(f"{given} has no counterpart{_HINTS.get(kind, '')}")
    weight = assertion.get("weight", 1)
    if weight == 0:
        raise UnmappedError(f"{given} has weight 0, so it decides nothing; every check here decides")
    found = _Assertion(kind, given != kind, value, assertion.get("threshold"), weight)
    before = len(decided.checks)
    said = _MAPPED[kind](found, decided) or ()
    name = assertion.get("metric")
    if isinstance(name, str) and name.strip():
        for check in decided.checks[before:]:
            check["description"] = name
    return [*said, *_list_left_out(found, assertion)]


def _list_left_out(found: _Assertion, assertion: Mapping[str, Any]) -> Sequence[str]:
    said = [f"{name} of {found.kind} is left out" for name in sorted(assertion.keys() - set(_IGNORED))]
    if found.kind in _GRADED and found.threshold is not None:
        said.append(f"threshold of {found.kind} is left out: an expectation is met or not")
    if found.kind not in _GRADED and found.weight != 1:
        said.append(f"weight of {found.kind} is left out: every check decides")
    return said


def _add_check(decided: Criteria, **declarative: Any) -> None:
    decided.checks.append({"declarative": declarative})


def _add_pattern(decided: Criteria, pattern: str, *, negated: bool, ignore_case: bool = False, flags: str = "") -> None:
    # The check searches, so a forbidden text is searched from the very beginning, over all lines.
    pattern = rf"\A(?![\s\S]*(?:{pattern}))" if negated else pattern
    _add_check(decided, kind="regex_match", pattern=flags + pattern, **({"ignore_case": True} if ignore_case else {}))


def _escape(text: str) -> str:
    return str(regex.escape(text, literal_spaces=True))


def _add_contains(found: _Assertion, decided: Criteria) -> None:
    """Add `contains`, `icontains`, and both with `-any` and `-all`."""
    patterns = [_escape(text) for text in found.texts()]
    ignore_case = found.kind.startswith("i")
    if found.kind.endswith("-all") and not found.negated:
        for pattern in patterns:
            _add_pattern(decided, pattern, negated=False, ignore_case=ignore_case)
        return
    if found.kind.endswith("-all"):  # not all of them
        every = "".join(rf"(?=[\s\S]*{pattern})" for pattern in patterns)
        _add_check(
            decided, kind="regex_match", pattern=rf"\A(?!{every})", **({"ignore_case": True} if ignore_case else {})
        )
        return
    _add_pattern(decided, "|".join(patterns), negated=found.negated, ignore_case=ignore_case)


def _add_starts_with(found: _Assertion, decided: Criteria) -> None:
    pattern = _escape(found.text())
    _add_check(decided, kind="regex_match", pattern=rf"\A(?!{pattern})" if found.negated else rf"\A{pattern}")


def _add_regex(found: _Assertion, decided: Criteria) -> None:
    given = found.text()
    try:
        flags, pattern = python_pattern(given)
        compile_pattern(flags + pattern)
    except ValueError as error:
        raise UnmappedError(f"the pattern {given!r:.60} cannot be taken over: {error}") from error
    _add_pattern(decided, pattern, negated=found.negated, flags=flags)


def _add_equals(found: _Assertion, decided: Criteria) -> None:
    if isinstance(found.value, dict | list):
        if found.negated:
            raise UnmappedError("not-equals of an object has no counterpart")
        _add_schema(decided, {"const": found.value})
        return
    # promptfoo compares with the text "true", as JavaScript writes it.
    text = _escape(str(found.value).lower() if isinstance(found.value, bool) else found.text())
    _add_check(decided, kind="regex_match", pattern=rf"\A(?!{text}\Z)" if found.negated else rf"\A{text}\Z")


def _add_is_json(found: _Assertion, decided: Criteria) -> Sequence[str]:
    if found.negated:
        raise UnmappedError("not-is-json has no counterpart")
    schema = found.value
    if isinstance(schema, str):
        try:
            schema = parse_yaml(schema.encode(), Path("its schema")).data
        except ConfigError as error:
            raise UnmappedError(str(error)) from error
    if not isinstance(schema, dict | None):
        raise UnmappedError(f"found {schema!r:.60}, expected a JSON Schema")
    _add_schema(decided, schema or {})
    if _has_format(schema):
        return ("format of its schema is left out: it is not checked here",)
    return ()


def _add_schema(decided: Criteria, schema: Mapping[str, Any]) -> None:
    """Add a check by a schema: promptfoo reads draft 7, and takes no JSON out of a fence, as ours does."""
    _add_check(decided, kind="json_schema", schema={"$schema": _DRAFT_07, **schema})
    pattern = r"\A(?![\s\S]*(?m:^)[ \t]*```)"
    decided.checks.append({"description": "no code fence", "declarative": {"kind": "regex_match", "pattern": pattern}})


def _has_format(schema: Any) -> bool:
    """Return whether the keyword `format` is anywhere in it; a property of that name has no text."""
    if isinstance(schema, dict):
        return isinstance(schema.get("format"), str) or any(map(_has_format, schema.values()))
    return isinstance(schema, list) and any(map(_has_format, schema))


def _add_rubric(found: _Assertion, decided: Criteria) -> None:
    weight = found.weight
    if not isinstance(weight, int | float) or isinstance(weight, bool) or weight < 0:
        raise UnmappedError(f"found the weight {weight!r}, expected a number of at least 0")
    for text in found.texts():
        said = {"text": f"{_MUST_NOT}{text}" if found.negated else text}
        decided.expectations.append(said if weight == 1 else {**said, "weight": float(weight)})


def _add_reference(found: _Assertion, decided: Criteria) -> None:
    if found.negated or decided.reference is not None:
        raise UnmappedError(f"{'not-' if found.negated else 'a second '}{found.kind} has no counterpart")
    decided.reference = found.text()


def _add_cost(found: _Assertion, decided: Criteria) -> None:
    _refuse_negated(found)
    _add_check(decided, kind="max_cost_usd", usd=found.number("dollars"))


def _add_latency(found: _Assertion, decided: Criteria) -> None:
    _refuse_negated(found)
    seconds = found.number("milliseconds") / 1000
    if seconds == 0:
        raise UnmappedError("found the threshold 0, expected milliseconds")
    _add_check(decided, kind="max_seconds", seconds=seconds)


def _refuse_negated(found: _Assertion) -> None:
    if found.negated:
        raise UnmappedError(f"not-{found.kind} has no counterpart")


def _add_tool_used(found: _Assertion, decided: Criteria) -> None:
    checks: list[dict[str, Any]] = []
    for each in found.value if isinstance(found.value, list) else [found.value]:
        said = {"name": each} if isinstance(each, str) else each
        if not isinstance(said, dict) or not isinstance(said.get("name"), str) or said.keys() - {"name", "min"}:
            raise UnmappedError(f"found {each!r:.60}, expected the name of a tool, with min at most")
        often = said.get("min", 1)
        # True is an int, too.
        if type(often) is not int or often < 1 or (found.negated and "min" in said):
            raise UnmappedError(f"found min {often!r}, expected a number of calls")
        if set("*?") & set(said["name"]):
            raise UnmappedError(f"found {said['name']!r:.60}, a pattern of names; name each tool")
        kind = "tool_not_called" if found.negated else "tool_called"
        checks.append({"kind": kind, "name": said["name"], **({"min_count": often} if often > 1 else {})})
    for check in checks:
        _add_check(decided, **check)


def _split_commas(text: str) -> list[str]:
    """Return the texts between commas; one in double quotes may hold commas, and quotes that are doubled or escaped."""
    text = text.rstrip(", \t\r\n")
    cells, at = [], 0
    while at < len(text):
        match = _CELL.match(text, at)
        if match is None:
            raise UnmappedError(f"{text!r:.60} is no list with commas: a quote has no end")
        quoted, plain = match.groups()
        cells.append(plain.strip() if quoted is None else re.sub(r'\\(["\\])|"(")', r"\1\2", quoted))
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
    "trajectory:tool-used": _add_tool_used,
}
_HINTS = {
    "contains-json": "; the check json_schema takes JSON, fenced or not",
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
    "moderation perplexity perplexity-score similar:cosine similar:dot similar:euclidean tool-call-f1 skill-used "
    "trajectory:goal-success trajectory:tool-sequence trace-error-spans trace-span-count trace-span-duration "
    "search-rubric word-count "
)
_KNOWN = frozenset({*_MAPPED, *_HINTS, *_CODE, *_OTHERS.split()})
"""All assertion types that a text may begin with; another text is the expected answer."""
_FROM_TEXT = re.compile(
    rf"(not-)?({'|'.join(sorted(map(re.escape, _KNOWN), key=len, reverse=True))})"
    r"(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?"
)
