"""What words say of two texts saying the same, and of one standing in an article."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.research.articles import Passages, words_of

TEXTS = st.text(alphabet="ab1,. 中文！\n", max_size=60)


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_likeness_is_symmetric_and_a_share(one: str, other: str) -> None:
    a, b = words_of(one), words_of(other)
    assert a.likeness(b) == b.likeness(a)
    assert 0 <= a.likeness(b) <= 1
    assert 0 <= a.stands_in(b) <= 1
    if a.words:
        assert a.likeness(a) == a.stands_in(a) == 1


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_what_a_passage_has_the_article_has(text: str, article: str) -> None:
    passages, words = Passages(article), words_of(text)
    assert 0 <= passages.share_of(words) <= words.stands_in(words_of(article))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Tin melts at 232 degrees.", "tin MELTS at ２３２ degrees", 1.0),
        ("It costs 1,290,000 yuan.", "It costs 1290000 yuan", 1.0),
        ("Tin melts at 232 degrees.", "Tin melts at 233 degrees.", 0.0),
        ("Tin melts at 232 degrees.", "Lead melts at 232 degrees.", 3 / 5),
        ("该药定价129万元", "该药定价129万元。", 1.0),
        ("该药定价129万元", "该药定价99万元", 0.0),
        ("", "", 0.0),
    ],
)
def test_likeness(one: str, other: str, expected: float) -> None:
    assert words_of(one).likeness(words_of(other)) == pytest.approx(expected)


def test_a_text_stands_in_three_sentences_but_not_all_over_an_article() -> None:
    unit = words_of("Tin melts at 232 degrees in air")
    near = "Metals differ. Tin is soft! It melts at 232 degrees.\nIn air it does not burn."
    far = "Tin is soft. One. Two. Three. It melts. One. Two. Three. At 232 degrees. One. Two. Three. In air."
    assert Passages(near).have(unit, 0.7)
    assert not Passages(far).have(unit, 0.7)
    assert not Passages(near.replace("232", "231")).have(unit, 0.7)
    assert not Passages("").have(unit, 0.7)


def test_a_list_of_all_words_states_nothing() -> None:
    unit = words_of("锡在232度熔化，铅在327度熔化")
    filler = " ".join(f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600))
    listed = f"锡 在 232 {filler} 度 熔 化 {filler} 铅 327"
    assert unit.stands_in(words_of(listed)) == 1
    assert not Passages(listed).have(unit, 0.7)
    assert Passages(f"{filler} 锡在232度熔化，铅在327度熔化 {filler}").have(unit, 0.7)
