"""Kits for sources and parts of cases: ours pass, and broken ones are reported."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ConfigDict
from testing.kits_support import CASES

import pytest_agentbench as ab
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.sources.names import BUILTIN_SOURCES
from pytest_agentbench.testing.samples import sample_case


def test_the_samples_source_passes(cards: Path) -> None:
    ab.check_case_source(find_extension("source", "cards"), cards)


@pytest.mark.parametrize(("name", "file"), [("cases", "plain_question/test.yaml"), ("questions", "capitals.jsonl")])
def test_our_sources_pass(name: str, file: str) -> None:
    ab.check_case_source(BUILTIN_SOURCES[name], CASES / file)


@pytest.mark.parametrize(("name", "file"), [("mcp_tasks", "mcp/tasks.json"), ("reports", "research/reports.yaml")])
def test_sources_of_packs_pass(name: str, file: str) -> None:
    ab.check_case_source(find_extension("source", name), CASES / file)


def other_ids(self: Any, number: int, question: str, answer: str, card: Any) -> ab.Case:
    return sample_case(case_id=f"card-{number}", path=self.path, line=number, tags=("cards",))


def twice_the_same(self: Any, subject: Any = None) -> Any:
    row = next(OPENED.rows(self))
    return iter([row, row])


def unreadable(self: Any, subject: Any = None) -> Any:
    self.path.read_text(encoding="utf-8")
    return OPENED.rows(self)


def nameless_problem(self: Any, line: int, problem: str) -> ab.BadRow:
    return ab.BadRow(line, problem, self.path)


OPENED: Any = SimpleNamespace()
"""The sample's own functions, before a test changes them."""


@pytest.mark.parametrize(
    ("place", "broken", "said"),
    [
        ("Cards.holds_cases", lambda self, path, head: False, "does not recognise sums.cards as a file of cases"),
        ("Cards.holds_cases", lambda self, path, head: head and True, "expected a bool for head"),
        ("OpenedCards._case", other_ids, "the case has"),
        ("OpenedCards.rows", twice_the_same, "two cases have the same id"),
        ("OpenedCards.rows", lambda self, subject=None: iter([]), "no valid case"),
        ("OpenedCards.rows", unreadable, "raised UnicodeDecodeError"),
        ("OpenedCards._bad", nameless_problem, "expected it to begin with"),
        ("Cards.index", lambda self, path, request: iter(()), "index: its ids or tags differ"),
    ],
)
def test_a_broken_source_is_noticed(
    place: str, broken: Any, said: str, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentbench_sample.cards import OpenedCards

    OPENED.rows = OpenedCards.rows
    monkeypatch.setattr(f"agentbench_sample.cards.{place}", broken, raising=False)
    with pytest.raises(AssertionError, match=said):
        ab.check_case_source(find_extension("source", "cards"), cards)


def test_patterns_and_words_that_do_not_fit_are_noticed(cards: Path) -> None:
    source = find_extension("source", "cards").source
    with pytest.raises(AssertionError, match=r"none of .* matches sums.cards"):
        ab.check_case_source(ab.SourceFiles(source, ["*.deck"]), cards)
    with pytest.raises(AssertionError, match="contains none of"):
        ab.check_case_source(ab.SourceFiles(source, ["*.cards"], ["x"]), cards)
    with pytest.raises(TypeError, match="expected lists of texts"):
        ab.SourceFiles(source, "*.cards")


def test_a_part_that_changes_when_it_is_read_back_is_noticed() -> None:
    from agentbench_sample.cards import Card

    ab.check_case_part(Card(most_words=3))

    class Loose(ab.CasePart):
        model_config = ConfigDict(extra="ignore", frozen=True)

    with pytest.raises(AssertionError, match="an unknown field: returned"):
        ab.check_case_part(Loose())
    with pytest.raises(AssertionError, match="expected a CasePart"):
        ab.check_case_part(object())


def test_a_part_with_fields_and_without_identity_is_noticed() -> None:
    class Unseen(ab.CasePart):
        words: int = 3

        def identity(self, folder: Path) -> dict[str, object]:
            return {}

    with pytest.raises(AssertionError, match="else an edited part reuses stored runs"):
        ab.check_case_part(Unseen())
    ab.check_case_part(Unseen(), affects_runs=False)
