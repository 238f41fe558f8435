"""Entries of evals files: the spellings that are in use, and their places.

Shapes: `{"skill_name": S, "evals": [entry, ...]}`, a list of entries, or one entry per file. An entry has a `prompt`
with an expected output and expectations, or a `query` with `should_trigger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, model_validator

from pytest_agentbench.bounded.json_files import first_element, first_keys
from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import Document, Loc, parse_json, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import CasePart, Record, Text
from pytest_agentbench.records.case import InsidePath

FILE = "evals.json"
_LIST = "evals"


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class SkillEval(CasePart):
    """The mark of a case that is an entry of an evals file."""

    has_own_id: ClassVar[bool] = True


class Assertion(Record):
    """A statement about the output, or a comparison with a `type` and a `value`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str | None = None
    name: str | None = None
    type: str | None = None
    value: Any = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.text or self.name or self.type):
            raise ValueError("found neither a text nor a type, expected a text, or an object with text or type")
        return self


class EvalEntry(Record):
    """An entry of an evals file. Other fields are its metadata."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    id: StrictInt | Text | None = None
    name: Annotated[str | None, Field(validation_alias=AliasChoices("name", "eval_name"))] = None
    prompt: Text | None = None
    query: Text | None = None
    expected_output: Annotated[str | None, Field(validation_alias=AliasChoices("expected_output", "expected"))] = None
    expectations: tuple[Assertion, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    expected_behavior: Texts = ()
    files: tuple[InsidePath, ...] = ()
    should_trigger: StrictBool | None = None
    skills: Texts = ()

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.prompt is None) == (self.query is None):
            found = "neither 'prompt' nor 'query'" if self.prompt is None else "both 'prompt' and 'query'"
            raise ValueError(f"found {found}, expected one of them")
        return self

    @property
    def text(self) -> str:
        """Return the message to the agent."""
        return self.prompt or self.query or ""

    @property
    def has_output(self) -> bool:
        """Return whether the entry is about the agent's output, and not only about the use of the skill."""
        expected = self.expectations or self.assertions or self.expected_behavior or self.expected_output
        return self.should_trigger is None or bool(expected)


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry with its 1-based number and line, or the error of one that is invalid."""

    number: int
    line: int
    entry: EvalEntry | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class EvalsFile:
    """A parsed evals file. `skill_name` is None if the file names no skill."""

    document: Document
    skill_name: str | None
    entries: Sequence[tuple[Loc, Any]]

    def read(self) -> Iterator[PlacedEntry]:
        """Yield the entries in order. Entries with equal ids are invalid from the second one on."""
        lines: dict[str, int] = {}
        for number, (loc, data) in enumerate(self.entries, start=1):
            line = self.document.problem(loc, "").line
            try:
                entry = self._entry(loc, data)
                key = str(number if entry.id is None else entry.id)
                if key in lines:
                    message = f"found {key!r} again, first on line {lines[key]}; give each entry its own id"
                    raise self.document.error([self.document.problem((*loc, "id"), message)])
                lines[key] = line
                yield PlacedEntry(number, line, entry)
            except ConfigError as error:
                yield PlacedEntry(number, line, None, str(error))

    def _entry(self, loc: Loc, data: Any) -> EvalEntry:
        if not isinstance(data, dict):
            message = f"found {data!r:.60}, expected an entry: an object with a prompt or a query"
            raise self.document.error([self.document.problem(loc, message)])

        def place(way: Loc) -> tuple[int, int]:
            problem = self.document.problem((*loc, *way), "")
            return problem.line, problem.column

        path = self.document.path
        return validate(Document(path, b"", data, place=place), EvalEntry, Scope(str(path.parent)))


def shows_evals(file_name: str, head: str) -> bool:
    """Return whether the head of a JSON file, which may be cut off, is that of an evals file."""
    keys = first_keys(head)
    if keys.get(_LIST) == "[":
        return file_name == FILE or "skill_name" in keys
    if keys:
        return "skills" in keys and ("prompt" in keys or "query" in keys)
    element = first_element(head) or {}
    return {"query", "should_trigger"} <= element.keys() or (file_name == FILE and "prompt" in element)


def read_evals(path: Path) -> EvalsFile:
    """Return the parsed file. Raises ConfigError."""
    document = parse_json(read_bytes(path), path)
    data = document.data
    if isinstance(data, dict) and isinstance(entries := data.get(_LIST), list):
        name = data.get("skill_name")
        placed: list[tuple[Loc, Any]] = [((_LIST, at), entry) for at, entry in enumerate(entries)]
        return EvalsFile(document, name if isinstance(name, str) else None, placed)
    if isinstance(data, dict):
        skills = data.get("skills")
        name = skills[0] if isinstance(skills, list) and skills and isinstance(skills[0], str) else None
        return EvalsFile(document, name, [((), data)])
    if isinstance(data, list):
        return EvalsFile(document, None, [((at,), entry) for at, entry in enumerate(data)])
    raise ConfigError(f"{path}:1:1: found {data!r:.60}, expected evals: an object with a list `evals`, or a list")
