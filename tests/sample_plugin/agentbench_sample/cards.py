"""Case source: files of flash cards, one case a line, and the part that their cases carry.

    cards
    What is 1 + 1? = 2
    Which is the largest planet? = Jupiter | 1

A line is QUESTION = ANSWER, and after a bar the most words that an answer may have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pytest_agentbench import (
    BadRow,
    Case,
    CasePart,
    CaseSource,
    ConfigError,
    Message,
    MetricSpec,
    OpenedSource,
    RunnerSpec,
    SourceCase,
    SourceRequest,
    StoredAnswers,
)


class Card(CasePart):
    """What a card asks for beside its answer. A test.yaml may have it too: `card: {most_words: 3}`."""

    is_section = True

    most_words: int = 5
    """How long an answer may get."""


class OpenedCards(OpenedSource):
    """A file of cards. Its name begins the ids of its cases."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.name = path.stem

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield a case or a problem for each line, with its number. Raises ConfigError where it cannot be read."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}: cannot be read: {error}") from error
        for number, line in enumerate(lines[1:], start=2):
            question, mark, rest = line.partition("=")
            answer, _, most = rest.partition("|")
            if not mark:
                yield self._bad(number, f"found {line!r}, expected QUESTION = ANSWER")
            elif most and not most.strip().isdecimal():
                yield self._bad(number, f"found {most.strip()!r} after the bar, expected a number of words")
            else:
                card = Card(most_words=int(most)) if most else Card()
                make = partial(self._case, number, question.strip(), answer.strip(), card)
                yield SourceCase(f"{self.name}.{number}", ("cards",), self.path, number, make)

    def _bad(self, line: int, problem: str) -> BadRow:
        return BadRow(line, f"{self.path}:{line}:1: {problem}", self.path)

    def _case(self, line: int, question: str, answer: str, card: Card) -> Case:
        return Case(
            case_id=f"{self.name}.{line}",
            title=question,
            path=self.path,
            line=line,
            dataset=self.name,
            tags=("cards",),
            runner=RunnerSpec(type="llm_probe"),
            messages=(Message(role="user", content=question),),
            reference=answer,
            metrics=(MetricSpec(name="contains_answer", threshold=1.0),),
            parts={"card": card},
        )


class Cards(CaseSource):
    """Files that begin with the line `cards`."""

    holds = "cards"

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether it begins as such a file does. What cannot be read is said when it is opened."""
        return head is None or head.startswith("cards\n")

    def open(self, path: Path, request: SourceRequest) -> OpenedCards:
        """Return the file. Nothing of it is read before its rows are."""
        return OpenedCards(path)


CARDS = Cards()
