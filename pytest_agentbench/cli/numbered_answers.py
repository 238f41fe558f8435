"""Decide from all rows of a dataset whether numbers as answers are indexes from 0 or 1, or texts of choices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.sources.items import MISSING


@dataclass(frozen=True, slots=True)
class Numbering:
    """Meaning of the numbers, as `answer_is` of a dataset.yaml, and its reason."""

    answer_is: str
    reason: str


def decide_numbering(rows: Iterable[tuple[Any, Any]]) -> Numbering | None:
    """Return the meaning of the answers, given each row's answer and choices; None if they are no numbers or ambiguous.

    One number that is no index from 0 is decisive: then all are texts of choices if they can be, else they count from
    1. Digits in quotes are texts of choices if all of them are.
    """
    seen = _Seen()
    for answer, choices in rows:
        if answer is None or answer is MISSING or not isinstance(choices, list):
            continue  # such a row is an error when it runs
        text = str(answer).strip()
        if isinstance(answer, bool) or not text.isdecimal():
            return None
        seen.add(text, choices, quoted=isinstance(answer, str))
    return seen.decide()


@dataclass
class _Seen:
    """Facts about the answers of all rows so far."""

    rows: int = 0
    quoted: bool = True
    are_indices: bool = True
    count_from_1: bool = True
    are_texts: bool = True
    beyond: str = ""
    """The first number that is no index from 0."""

    def add(self, text: str, choices: list[Any], *, quoted: bool) -> None:
        self.rows += 1
        self.quoted = self.quoted and quoted
        self.are_texts = self.are_texts and text in [str(choice).strip() for choice in choices]
        # Nine digits are beyond any list of choices, and quickly read.
        number = int(text) if len(text) < 10 else len(choices) + 1
        self.count_from_1 = self.count_from_1 and 1 <= number <= len(choices)
        if number >= len(choices):
            self.are_indices = False
            self.beyond = self.beyond or f"{text[:20]} is no index from 0 into {len(choices)} choices"

    def decide(self) -> Numbering | None:
        rows = f"in all {self.rows:,} rows" if self.rows > 1 else "in the only row"
        if not self.rows:
            return None
        if self.are_texts and (self.quoted or not self.are_indices):
            why = self.beyond or "the answers are texts"
            return Numbering("text", f"{why}, and {rows} the answer is the text of a choice")
        if self.are_indices:
            return Numbering("index", f"{rows} the answer is a number from 0 and below the number of choices")
        if self.count_from_1:
            return Numbering("index1", f"{self.beyond}, and {rows} the answer counts the choices from 1")
        return None
