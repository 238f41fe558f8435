"""Articles that a model cleans: whole or in pieces, and never shortened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from research_judges import Judge, cut

from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.packs.research.articles import clean_by_model, required_text
from pytest_agentbench.packs.research.asking import ReplyCut, Unscored, split_text

PARAGRAPHS = [f"Paragraph {n} says that tea number {n} grows in field {n}, as was found. [{n}]" for n in range(16)]
REFERENCES = "\n".join(["Where this is from:", *(f"- {n}. Tea Journal https://example.org/{n}" for n in range(16))])
ARTICLE = "\n\n".join(["# Tea", *PARAGRAPHS, REFERENCES])
CLEAN = re.sub(r" \[\d+\]", "", "\n\n".join(["# Tea", *PARAGRAPHS]))


def shown(body: dict[str, Any]) -> str:
    """The article in a request."""
    return message_text(body["messages"][1]).split(">>>\n", 1)[1].split("\n<<<END", 1)[0]


def tidy(text: str) -> str:
    """What a model that does as it is told makes of a part of the article."""
    lines = (re.sub(r" \[\d+\]", "", line) for line in text.split("\n") if "https://" not in line)
    return "\n".join(line for line in lines if line != "Where this is from:").strip()


def obedient(body: dict[str, Any]) -> dict[str, str]:
    return {"article": tidy(shown(body))}


def limited(most: int) -> Callable[[dict[str, Any]], Any]:
    """A model whose replies end after so many characters of the article."""

    def reply(body: dict[str, Any]) -> Any:
        text = tidy(shown(body))
        return cut(f'{{"article": "{text[:most]}') if len(text) > most else {"article": text}

    return reply


def cleaned(judge: Judge, article: str = ARTICLE) -> str:
    return judge.ask(lambda asking: clean_by_model(asking, "research.1", "en", article))


def test_an_article_loses_its_apparatus_only() -> None:
    with Judge(obedient) as judge:
        assert cleaned(judge) == CLEAN
        assert len(judge.bodies) == 1


@pytest.mark.slow
def test_an_article_with_a_truncated_reply_is_cleaned_in_pieces(tmp_path: Path) -> None:
    with Judge(limited(500), kept=tmp_path) as judge:
        assert cleaned(judge) == CLEAN
        asked = [shown(body) for body in judge.bodies]
        assert len(asked) >= 5
        assert asked[0] == ARTICLE
        assert cleaned(judge) == CLEAN
        assert len(judge.bodies) == len(asked)


@pytest.mark.slow
def test_a_piece_that_is_still_too_long() -> None:
    with Judge(limited(20)) as judge, pytest.raises(ReplyCut, match="limit of tokens"):
        cleaned(judge)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda text: text[: len(text) // 2], r"of its text is missing; give all of it back"),
        (lambda text: "", "100% of its text is missing"),
        (lambda text: re.sub(r"grows in field \d+, ", "", text), "of its text is missing"),
        (lambda text: text + " In sum, " + "tea is a plant that people drink. " * 9, "add nothing"),
        (lambda text: text.replace("tea", "coffee"), "add nothing"),
    ],
)
def test_a_reply_that_is_another_text_is_asked_for_again(wrong: Callable[[str], str], reason: str) -> None:
    with Judge(lambda body: {"article": wrong(tidy(shown(body)))}, obedient) as judge:
        assert cleaned(judge) == CLEAN
        assert re.search(reason, message_text(judge.bodies[1]["messages"][-1]))


@pytest.mark.slow
def test_a_model_that_keeps_shortening_gives_no_article() -> None:
    with Judge({"article": "Tea grows."}) as judge, pytest.raises(Unscored, match=r"\d+% of its text is missing"):
        cleaned(judge)


def test_chinese_words_count_one_by_one() -> None:
    article = "中国的茶叶市场很大，[1] 每年增长百分之五。" * 20
    with Judge({"article": "中国的茶叶市场很大。" * 20}, {"article": article.replace("[1] ", "")}) as judge:
        assert cleaned(judge, article) == article.replace("[1] ", "")
        assert len(judge.bodies) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["{}. Pour water of {} degrees over the leaves, and wait.", "{}、用{}度的水冲泡茶叶，然后等待。"]
)
def test_steps_of_a_list_are_no_references(step: str) -> None:
    article = "\n".join(step.format(n, 60 + n) for n in range(1, 30))
    with Judge({"article": article[:300]}, {"article": article}) as judge:
        assert cleaned(judge, article) == article
        assert "of its text is missing" in message_text(judge.bodies[1]["messages"][-1])


def test_references_may_go_wherever_they_stand() -> None:
    listed = "## References\n1. A. Author, Tea, 1999.\n2. B. Author, Milk, 2001.\n[3] C. Author\n"
    article = f"# Tea\nTea grows.\n\n{listed * 3}\n## Appendix\n1. One more.\n"
    left = "# Tea\nTea grows.\n\n## Appendix\n1. One more."
    with Judge({"article": left}) as judge:
        assert cleaned(judge, article) == left
        assert len(judge.bodies) == 1


def test_nothing_is_asked_about_an_article_without_words() -> None:
    with Judge(obedient) as judge:
        assert cleaned(judge, " \n\n---\n") == ""
        assert judge.bodies == []


@given(st.text(min_size=2))
def test_halves_are_the_whole_text(text: str) -> None:
    first, second = split_text(text)
    assert first + second == text
    assert first
    assert second


@pytest.mark.slow
@given(st.lists(st.text("ab [1]\n#", max_size=20)))
def test_required_text_is_part_of_the_article(lines: list[str]) -> None:
    article = "\n".join(lines)
    assert Counter(required_text(article)) <= Counter(article)
