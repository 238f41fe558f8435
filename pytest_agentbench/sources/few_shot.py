"""Solved examples before a question: the user asks, the assistant answers, in as many pairs as there are shots."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.config import FewShot, match_files
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Message
from pytest_agentbench.sources.item_class import ItemParser
from pytest_agentbench.sources.json_items import BadItem, Item, read_items
from pytest_agentbench.sources.recipe import Recipe
from pytest_agentbench.sources.standard import answer_of, require_item

_DEFAULT_COUNT = 5


class _Example(NamedTuple):
    question: str
    messages: tuple[Message, Message]


class Shots:
    """The examples of a dataset: one more than are shown, for no row is shown itself.

    Making it reads them. Raises ConfigError for examples that are none.
    """

    def __init__(self, recipe: Recipe, few_shot: FewShot, parse: ItemParser | None) -> None:
        self._recipe, self._parse = recipe, parse
        examples = self._distinct(few_shot)
        if few_shot.examples is not None:
            self._count = few_shot.count or len(few_shot.examples)
        else:
            self._count = few_shot.count or _DEFAULT_COUNT
        seed = few_shot.shuffle_seed
        if seed is None:
            self._pool = list(islice(examples, self._count + 1))
        else:
            self._pool = heapq.nsmallest(self._count + 1, examples, lambda each: _rank(seed, each.question))
        if len(self._pool) < (few_shot.count or 1):
            origin = f" of the split {few_shot.split!r}" if few_shot.split is not None else ""
            found = f"found {len(self._pool) or 'no'} examples{origin} with questions of their own"
            raise ConfigError(recipe.place(("few_shot",), f"{found}, expected {few_shot.count or 'at least one'}"))

    @property
    def questions(self) -> list[str]:
        """What the examples ask that rows are shown, as it stands in them."""
        return [example.question for example in self._pool[: self._count]]

    def before(self, question: str) -> Iterator[Message]:
        """The messages that come before a question: examples with other questions."""
        others = (example for example in self._pool if example.question != question)
        for example in islice(others, self._count):
            yield from example.messages

    def _distinct(self, few_shot: FewShot) -> Iterator[_Example]:
        seen: set[str] = set()
        for place, item in self._items(few_shot):
            try:
                require_item(item)
                answer = answer_of(item)
                if not answer:
                    raise ValueError("found no answer, which an example needs")
                asked = self._recipe.prompt(item)
            except ValueError as error:
                raise ConfigError(f"{place}: {error}") from error
            question = item["question"]
            if question not in seen:
                seen.add(question)
                messages = (Message(role="user", content=asked), Message(role="assistant", content=answer))
                yield _Example(question, messages)

    def _items(self, few_shot: FewShot) -> Iterator[tuple[str, Any]]:
        """Each example in the standard form, with its place."""
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
                if of_one_split:  # else it is told with the rows
                    raise ConfigError(f"{place}: {value.reason}")
            elif of_one_split or self._recipe.split_of(value.value) == split:
                try:
                    yield place, self._recipe.item(value.value, value.number, self._parse)
                except ValueError as error:
                    raise ConfigError(f"{place}: {error}") from error


def _rank(seed: int, question: str) -> bytes:
    return sha256(f"{seed}{question}".encode("utf-8", "surrogatepass")).digest()
