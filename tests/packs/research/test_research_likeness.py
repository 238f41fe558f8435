"""What words say of two texts saying the same, and of one standing in an article."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.research.articles import Passages, split_words

TEXTS = st.text(alphabet="ab1,. 中文！\n", max_size=60)


@given(TEXTS, TEXTS)
def test_likeness_is_symmetric_and_a_share(one: str, other: str) -> None:
    a, b = split_words(one), split_words(other)
    assert a.likeness(b) == b.likeness(a)
    assert 0 <= a.likeness(b) <= 1
    assert 0 <= a.share_in(b) <= 1
    if a.words:
        assert a.likeness(a) == a.share_in(a) == 1


@given(TEXTS, TEXTS)
def test_the_share_of_words_in_a_passage_is_at_most_that_in_the_article(text: str, article: str) -> None:
    passages, words = Passages(article), split_words(text)
    assert 0 <= passages.share_of(words) <= words.share_in(split_words(article))


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
    assert split_words(one).likeness(split_words(other)) == pytest.approx(expected)


def test_a_unit_is_found_within_three_sentences_but_not_across_an_article() -> None:
    unit = split_words("Tin melts at 232 degrees in air")
    near = "Metals differ. Tin is soft! It melts at 232 degrees.\nIn air it does not burn."
    far = "Tin is soft. One. Two. Three. It melts. One. Two. Three. At 232 degrees. One. Two. Three. In air."
    assert Passages(near).contain(unit, 0.7)
    assert not Passages(far).contain(unit, 0.7)
    assert not Passages(near.replace("232", "231")).contain(unit, 0.7)
    assert not Passages("").contain(unit, 0.7)


def test_a_list_of_all_words_states_nothing() -> None:
    unit = split_words("锡在232度熔化，铅在327度熔化")
    filler = " ".join(f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600))
    listed = f"锡 在 232 {filler} 度 熔 化 {filler} 铅 327"
    assert unit.share_in(split_words(listed)) == 1
    assert not Passages(listed).contain(unit, 0.7)
    assert Passages(f"{filler} 锡在232度熔化，铅在327度熔化 {filler}").contain(unit, 0.7)
