"""Apply a descriptor to rows: selection, prompts, examples, tags and metrics."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.bounded.json_files import BadItem, Item, read_items
from pytest_agentbench.config.base import Scope
from pytest_agentbench.config.data_files import match_files
from pytest_agentbench.config.dataset_file import (
    AnswerRule,
    DatasetDescriptor,
    FewShot,
    RowFields,
    find_only_field,
    parse_template,
)
from pytest_agentbench.config.documents import Loc, read_document
from pytest_agentbench.config.functions import read_functions
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.records.case import Message, MetricSpec
from pytest_agentbench.records.gold import gold_reply
from pytest_agentbench.sources.choices import choices_of, strip_own_letters
from pytest_agentbench.sources.items import (
    MISSING,
    ItemParser,
    answer_of,
    call_parser,
    describe_kind,
    describe_unknown_field,
    field_of,
    look_up,
    map_fields,
    metadata_of,
    require_item,
    texts_of,
)
from pytest_agentbench.terminal_text import visible

_STANDARD_FIELDS = RowFields()


@dataclass(frozen=True, eq=False)
class Recipe:
    """A descriptor at `path` with its data files, which it lacks if it has a `source`. `only` is the file to read, None
    for all of them.
    """

    path: Path
    descriptor: DatasetDescriptor
    scope: Scope
    files: tuple[Path, ...]
    only: Path | None = None

    def parts(self, split: str | None = None) -> Iterator[tuple[Path, Iterable[Item | BadItem]]]:
        """Yield each file with its values, or the descriptor with the values of its source.

        `split` replaces the descriptor's split of a source.
        """
        if self.descriptor.source is not None:
            yield self.path, self._rows_of_source(split or self.descriptor.split)
        elif self.only is not None:
            yield self.only, read_items(self.only)
        elif len(self.files) == 1:
            yield self.files[0], read_items(self.files[0])
        else:
            yield from ((file, _values(file)) for file in self.files)

    def item(self, value: Any, number: int, parse: ItemParser | None) -> Any:
        """Return a raw row in the standard form. Raises ValueError if it cannot be converted."""
        if parse is None and self.descriptor.benchmark is not None:
            message = f"{self.descriptor.benchmark} makes the items: it is code, which only pytest and evaluate run"
            raise CodeNotRun(self.place(("benchmark",), message))
        if not isinstance(value, dict):
            raise ValueError(f"found {describe_kind(value)}, expected an object")
        if self.descriptor.join is not None:
            value = {**self._joined.get(str(look_up(value, self.descriptor.fields.id)), {}), **value}
        item: Any = value
        if parse is not None:
            item = call_parser(parse, value, number)
        elif self.descriptor.fields != _STANDARD_FIELDS:
            item = map_fields(value, self.descriptor.fields)
        if self.descriptor.answer is not None:
            item = {**item, "answer": self.descriptor.answer}
        if self.descriptor.choices is not None:
            require_item(item)
            item = choices_of(
                item, lambda path: self._find(item, path), self.descriptor.choices, self.descriptor.answer_is
            )
        return item

    def default_id(self, path: Path, number: int) -> str:
        """Return the id of a row that has none: `item_<number>`, with the file's path if there may be several files."""
        if not self.files or self.descriptor.names_one_file:
            return f"item_{number}"
        return f"{self.place_of(path)}.item_{number}"

    def place_of(self, path: Path) -> str:
        """Return the path of a data file from the descriptor's folder, without its suffix."""
        return os.path.relpath(path.with_suffix(""), self.path.parent)

    def split_of(self, value: Any) -> Any:
        """Return the split that a row of a file names."""
        return look_up(value, self.descriptor.fields.split)

    def prompt(self, item: Mapping[str, Any]) -> str:
        """Return the prompt for an item. Raises ValueError if the item lacks a field of the template."""
        if self._template is None:
            return str(item["question"])
        parts = list(self._template)
        # The template alternates between text and names of fields.
        parts[1::2] = [_show_value(self._value(item, path, "prompt")) for path in parts[1::2]]
        return "".join(parts)

    def hidden_texts(self, item: Mapping[str, Any]) -> dict[str, str]:
        """Return the texts of the verifier's files by their paths. Raises ValueError if the item lacks a field."""
        if self.descriptor.verify is None:
            return {}
        texts = self.descriptor.verify.texts
        return {path: self._filled_text(item, text, f"verify.texts.{path}") for path, text in texts.items()}

    def context(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the runners' settings with the functions of the row. Raises ValueError for wrong declarations."""
        context, path = self.descriptor.context, self.descriptor.functions_from
        if path is None:
            return context
        declarations = self._value(item, path, "functions_from")
        try:
            functions = read_functions(declarations)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        probe = {**(context.get("llm_probe") or {}), "functions": [function._asdict() for function in functions]}
        return {**context, "llm_probe": probe}

    def tags(self, item: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the descriptor's tags and the tags from the item's fields.

        Raises ValueError for values that cannot be tags.
        """
        tags = [*self.descriptor.tags, *texts_of(self._find(item, self.descriptor.fields.tags))]
        for path in self.descriptor.tags_from:
            values = self._find(item, path)
            if not isinstance(values, list):
                values = [values]
            tags += [_make_tag(path, value) for value in values if value is not None and value is not MISSING]
        return tuple(tags)

    def metrics(self, metrics: tuple[MetricSpec, ...], item: Mapping[str, Any]) -> tuple[MetricSpec, ...]:
        """Return the metrics with their arguments filled from the item. Raises ValueError if it lacks a field."""
        return tuple(self._filled(metric, item) for metric in metrics)

    def never_found(self) -> dict[str, Loc]:
        """Return fields that at least one row should have, with their places in the descriptor."""
        named = {path: ("tags_from", at) for at, path in enumerate(self.descriptor.tags_from)}
        fields = self.descriptor.fields
        return named | {fields.path(name): ("fields", name) for name in fields.model_fields_set - {"split", "tags"}}

    def lacks(self, item: Mapping[str, Any], path: str) -> bool:
        """Return whether the item has no such field."""
        return self._find(item, path) is MISSING

    def place(self, loc: Loc, message: str) -> str:
        """Return `file:line:column: message` for a place in the descriptor."""
        document = read_document(self.path)
        return str(document.error([document.problem(loc, message)]))

    def where(self, path: Path, value: Item | BadItem) -> str:
        """Return `file:line:column` of a value, or the place of the source and the row's number."""
        if self.descriptor.source is None:
            return place_in_file(path, value)
        return f"{self._source_place} row {value.line}"

    def _rows_of_source(self, split: str | None) -> Iterator[Item | BadItem]:
        from pytest_agentbench.sources.hub import read_source

        try:
            yield from read_source(self.descriptor, self.scope, split)
        except ValueError as error:
            raise ConfigError(self.place(("source",), str(error))) from error

    def _filled(self, metric: MetricSpec, item: Mapping[str, Any]) -> MetricSpec:
        fields = {name: path for name, value in metric.args.items() if (path := find_only_field(value)) is not None}
        filled = {name: self._value(item, path, f"metrics: {metric.name}: {name}") for name, path in fields.items()}
        if filled:
            return metric.model_copy(update={"args": {**metric.args, **filled}})
        return metric

    def _filled_text(self, item: Mapping[str, Any], template: str, asking: str) -> str:
        text = ""
        for at, part in enumerate(parse_template(template)):
            if at % 2 == 0:
                text += part
                continue
            value = _as_code(self._value(item, part, asking))
            # All lines of a value get the indent of its first line, such as statements in the body of a function.
            if (indent := _INDENT.search(text)) is not None:
                value = value.replace("\n", f"\n{indent[1]}")
            text += value
        return text

    def _value(self, item: Mapping[str, Any], path: str, asking: str) -> Any:
        value = self._find(item, path)
        if value is MISSING:
            raise ValueError(f"{asking}: {describe_unknown_field(path, ('question', *metadata_of(item)))}")
        return value

    def _find(self, item: Mapping[str, Any], path: str) -> Any:
        """Return a field by its name in raw rows or in items, MISSING if there is none."""
        fields = self.descriptor.fields
        for name in ("question", "id", "answer", "metadata"):
            raw = fields.path(name)
            # Descriptors use the names of raw rows. A mapped row has only the standard names.
            if raw != name and (path == raw or path.startswith(f"{raw}.")):
                path = name + path[len(raw) :]
                break
        value = field_of(item, path)
        if path == "answer" and isinstance(fields.answer, AnswerRule) and isinstance(value, dict):
            return value[fields.answer.rule]
        return value

    @cached_property
    def _joined(self) -> Mapping[str, dict[str, Any]]:
        """Return the rows of the file that the descriptor joins, by their ids. Raises ConfigError for a bad row."""
        name, rows = self.descriptor.fields.id, dict[str, dict[str, Any]]()
        for file in match_files(self.descriptor.join or "", self.scope.folder):
            for value in read_items(file):
                place = f"{file}:{value.line}:1: join: "
                if isinstance(value, BadItem):
                    raise ConfigError(place + value.reason)
                identifier = look_up(value.value, name)
                if not isinstance(value.value, dict) or identifier is MISSING:
                    raise ConfigError(f"{place}found no field {name!r}, which names the row that it belongs to")
                if str(identifier) in rows:
                    raise ConfigError(f"{place}found {str(identifier)[:80]!r} again, expected each {name} once")
                rows[str(identifier)] = value.value
        return rows

    @cached_property
    def _source_place(self) -> str:
        return self.place(("source",), "").rstrip(" ")

    @cached_property
    def _template(self) -> tuple[str, ...] | None:
        if self.descriptor.prompt is None:
            return None
        return parse_template(self.descriptor.prompt)


def _values(file: Path) -> Iterator[Item | BadItem]:
    """Yield the values of one file of several. An unreadable file is a bad item, so that the others are still read."""
    try:
        yield from read_items(file)
    except ConfigError as error:
        yield BadItem(1, 1, re.sub(r"^(:\d+:\d+)?: ", "", str(error).removeprefix(visible(str(file)))))


def place_in_file(path: Path, value: Item | BadItem) -> str:
    """Return `file:line:column` of a value. Only bad items have a column other than 1."""
    return f"{path}:{value.line}:{value.column if isinstance(value, BadItem) else 1}"


def _show_value(value: Any) -> str:
    """Return a field in a prompt: a text unchanged, a list as lettered lines (A., B., ...), other values as JSON.

    A list whose texts begin with such letters gets no further letters.
    """
    if isinstance(value, list):
        if strip_own_letters(value) is not None:
            return "\n".join(value)
        return "\n".join(f"{_letters(at)}. {_show_element(element)}" for at, element in enumerate(value))
    return _show_element(value)


_INDENT = re.compile(r"(?:^|\n)([ \t]+)\Z")


def _as_code(value: Any) -> str:
    """Return a field in a file: a text unchanged, the texts of a list as lines, other values as JSON."""
    if isinstance(value, list) and all(isinstance(element, str) for element in value):
        return "\n".join(value)
    return _show_element(value)


def _show_element(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def _letters(place: int) -> str:
    """Return a to Z, then AA, AB, ..."""
    letters = ""
    place += 1
    while place:
        place, at = divmod(place - 1, 26)
        letters = chr(ord("A") + at) + letters
    return letters


def _make_tag(path: str, value: Any) -> str:
    """Return the tag of a value. A number, true or false is preceded by the field's name."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise ValueError(f"{path}: found {describe_kind(value)}, expected a text, a number, true or false for a tag")
    return f"{path}-{json.dumps(value)}"


_DEFAULT_COUNT = 5


class _Example(NamedTuple):
    question: str
    messages: tuple[Message, Message]


class Shots:
    """The examples of a dataset: one more than are shown, because no row is an example of itself.

    The constructor reads them. Raises ConfigError for invalid examples.
    """

    def __init__(self, recipe: Recipe, few_shot: FewShot, parse: ItemParser | None) -> None:
        self._recipe, self._parse = recipe, parse
        examples = self._distinct(few_shot)
        self._count = few_shot.count or len(few_shot.examples or ()) or _DEFAULT_COUNT
        seed = few_shot.shuffle_seed
        if seed is None:
            # One more than is shown: if the question itself is an example, the next one replaces it.
            self._pool = list(islice(examples, self._count + 1))
        else:
            # A heap of the shown examples, because a split of training rows may have millions.
            self._pool = heapq.nsmallest(self._count + 1, examples, lambda example: _rank(seed, example.question))
        if len(self._pool) < (few_shot.count or 1):
            found = f"found {len(self._pool) or 'no'} examples"
            if few_shot.split is not None:
                found = f"{found} of the split {few_shot.split!r}"
            expected = few_shot.count or "at least one"
            raise ConfigError(recipe.place(("few_shot",), f"{found} with distinct questions, expected {expected}"))

    @property
    def questions(self) -> list[str]:
        """Return the questions of the examples that rows are shown."""
        return [example.question for example in self._pool[: self._count]]

    def before(self, question: str) -> Iterator[Message]:
        """Yield the messages that come before a question: examples with other questions."""
        others = (example for example in self._pool if example.question != question)
        for example in islice(others, self._count):
            yield from example.messages

    def _distinct(self, few_shot: FewShot) -> Iterator[_Example]:
        seen: set[str] = set()
        for place, item in self._items(few_shot):
            try:
                require_item(item)
                answer = gold_reply(answer_of(item) or "")
                if not answer:
                    raise ValueError("found no answer, which an example needs")
                prompt = self._recipe.prompt(item)
            except ValueError as error:
                raise ConfigError(f"{place}: {error}") from error
            question = item["question"]
            if question not in seen:
                seen.add(question)
                messages = (Message(role="user", content=prompt), Message(role="assistant", content=answer))
                yield _Example(question, messages)

    def _items(self, few_shot: FewShot) -> Iterator[tuple[str, Any]]:
        """Yield each example in the standard form, with its place."""
        if few_shot.examples is not None:
            for at, example in enumerate(few_shot.examples):
                place = self._recipe.place(("few_shot", "examples", at), "").rstrip(": ")
                yield place, {"question": example.question, "answer": example.answer, **(example.model_extra or {})}
        elif few_shot.file is not None:
            for file in match_files(few_shot.file, self._recipe.scope.folder):
                yield from self._read(file, read_items(file))
        else:
            for file, values in self._recipe.parts(few_shot.split):
                yield from self._read(file, values, few_shot.split)

    def _read(
        self, file: Path, values: Iterable[Item | BadItem], split: str | None = None
    ) -> Iterator[tuple[str, Any]]:
        of_one_split = self._recipe.descriptor.source is not None or split is None
        for value in values:
            place = f"{self._recipe.where(file, value)}: few_shot"
            if isinstance(value, BadItem):
                if of_one_split:  # otherwise the item is reported with the rows of the dataset
                    raise ConfigError(f"{place}: {value.reason}")
            elif of_one_split or self._recipe.split_of(value.value) == split:
                try:
                    yield place, self._recipe.item(value.value, value.number, self._parse)
                except ValueError as error:
                    raise ConfigError(f"{place}: {error}") from error


def _rank(seed: int, question: str) -> bytes:
    return sha256(f"{seed}{question}".encode("utf-8", "surrogatepass")).digest()
