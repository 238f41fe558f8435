"""Names of servers and tools in a text: the fuzzy text must not give them away (seed 004, A.3).

Names are found as whole words, in any case. Two kinds of names are also ordinary words, which a person may well say:

- a server's name that its own tools' descriptions use in lower case ("time", "national parks"), or that is a single
  word which they do not use as a name either ("everything"), counts only where it is written as a name within a
  sentence, or stands before "server", "tool", "MCP" or "API";
- a tool's name of one word ("search", "median") counts only in backquotes, after its server's name, or before "tool".

Of other tools the name counts as it is written, and, where it begins with a verb and has three words or more
(`get_current_time`), also as words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_agentbench.synthesis.base import Catalogue, Reason
from pytest_agentbench.tools.mcp import ServerTool

_BEFORE, _AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
_IN_SENTENCE = r"(?<=[a-z0-9,;\u4e00-\u9fff] )"
_WORD = re.compile("[A-Za-z][a-z]+")
_SUFFIX = re.compile(r"(?i)[\s_-]+(?:mcp|server)$")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VERBS = re.compile(
    "add|analyze|calculate|check|compare|compute|convert|count|create|delete|describe|download|edit|extract|fetch|find|"
    "generate|get|list|lookup|move|plot|query|read|remove|retrieve|run|search|set|show|summarize|update|write"
)
_FEWEST_WORDS = 3


def named_in(text: str, catalogues: Iterable[Catalogue]) -> Iterator[Reason]:
    """A reason for each server and tool whose name stands in `text`, the fuzzy one."""
    for catalogue in catalogues:
        if (found := _server_pattern(catalogue).search(text)) is not None:
            yield _named(found, f"server {catalogue.server!r}")
        for tool in catalogue.tools:
            if (found := _tool_pattern(tool).search(text)) is not None:
                yield _named(found, f"tool {tool.tool_id!r}")


def _named(found: re.Match[str], what: str) -> Reason:
    return Reason(kind="name", text=f"found {found.group()!r} in the fuzzy text, which names the {what}; describe it")


def words_of(name: str) -> list[str]:
    """The words that a name in snake_case, kebab-case or camelCase is made of, in lower case."""
    return [part.lower() for part in _PART.findall(name)]


def _server_pattern(catalogue: Catalogue) -> re.Pattern[str]:
    name = catalogue.server
    patterns = []
    for form in dict.fromkeys((name, _SUFFIX.sub("", name))):
        spaced = _spaced(form)
        if _is_ordinary(form, catalogue):
            patterns.append(_IN_SENTENCE + _whole(spaced) if form != form.lower() else r"(?!)")
            patterns.append(rf"(?i:{_whole(spaced)}[\s-](?:MCP|API|servers?|tools?)\b)")
        else:
            patterns.append(rf"(?i:{_whole(spaced)})")
    return re.compile("|".join(patterns))


def _is_ordinary(name: str, catalogue: Catalogue) -> bool:
    """Whether the name may be a word of the language, by how the descriptions of the server's own tools use it."""
    said = " ".join(tool.description for tool in catalogue.tools)
    if re.search(_whole(_spaced(name.lower())), said) is not None:
        return True
    return _WORD.fullmatch(name) is not None and re.search(_IN_SENTENCE + _whole(re.escape(name)), said) is None


def _tool_pattern(tool: ServerTool) -> re.Pattern[str]:
    name, words = re.escape(tool.name), words_of(tool.name)
    patterns = [rf"{_spaced(tool.server)}\s?:\s?{name}{_AFTER}"]
    if len(words) < 2:
        patterns += [rf"`{name}`", rf"{_whole(name)}\s+tool\b"]
    else:
        patterns.append(_whole(name))
    if len(words) >= _FEWEST_WORDS and _VERBS.fullmatch(words[0]):
        patterns.append(_whole(r"[\s_-]".join(words)))
    return re.compile("|".join(patterns), re.IGNORECASE)


def _spaced(name: str) -> str:
    """A pattern for the name with its words apart by a blank, a hyphen, an underscore, or nothing."""
    return r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", name)))


def _whole(pattern: str) -> str:
    return f"{_BEFORE}{pattern}{_AFTER}"
