from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_samples import reported

from pytest_agentbench.metrics.scoring import score

texts = st.text(max_size=60)


@given(
    answer=st.integers(),
    before=st.sampled_from(["", "It is ", "= ", "答案是"]),
    after=st.sampled_from(["", ".", "!", " km", "。"]),
)
def test_a_number_is_found_among_words_and_punctuation(answer, before, after):
    assert score("contains_answer", str(answer), f"{before}{answer}{after}") == 1


@given(answer=st.integers(min_value=0), digit=st.integers(0, 9))
def test_a_number_is_not_found_inside_a_longer_one(answer, digit):
    assert score("contains_answer", str(answer), f"{answer}{digit}") == 0
    assert score("contains_answer", str(answer), f"-{answer}") == 0
    assert score("contains_answer", str(answer), f"{answer}.5") == 0


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("Paris", "The capital is Paris.", 1),
        ("PARIS.", "paris, of course", 1),
        ("Paris", "Parisian life", 0),
        ("4", "14", 0),
        ("234", "1,234", 0),
        ("2", "1,2,3", 1),
        ("1234", "about 1,234 people", 1),
        ("1,234", "1234", 1),
        ("3.11", "Python 3.11.2", 0),
        ("3.11", "Python 3.11.", 1),
        ("4", "4.5x", 0),
        ("C", "C++ and C#", 0),
        ("C#", "It is C#.", 1),
        ("don't", "I don’t", 1),
        ('"hi"', "he said “hi”", 1),
        ("Jean-Luc", "Jean‑Luc Godard", 1),
        ("Paris", "<think>Paris or Nice?</think>Nice", 0),
        ("1,234", "about 1,234 people", 1),
        ("C++", "C and C++", 1),
        ("C++", "only C", 0),
        ("two  words", "Two\nwords", 1),
        ("北京", "中国的首都是北京。", 1),
        ("서울", "수도는 서울은", 1),
        ("１２", "12", 1),
        ("−5", "it fell to -5 degrees", 1),
        ("- 31", "It is -31.", 1),
        ("- 31", "It is 31.", 0),
        ("- 3 eggs", "buy\n- 3 eggs", 1),
        ("Cafe\u0301", "the CAFÉ", 1),
        ("न", "हिन्दी", 0),
        ("", "anything", 0),
        ("  ", "   ", 0),
    ],
)
def test_contains_answer_compares_whole_tokens(answer, text, expected):
    assert score("contains_answer", answer, text) == expected


@pytest.mark.parametrize(("row", "prediction"), reported("contains_answer"))
def test_contains_answer_scores_rows_of_public_reports_right(row, prediction):
    assert score("contains_answer", row["answer"], prediction) == row["want"]


MARKED = """
_Paris_
__Paris__
*Paris*
**Paris**
***Paris***
`Paris`
_**Paris**_
<b>Paris</b>
<em class="x">Paris</em>
\\textbf{Paris}
It is **Paris**.
"_Paris_"
(_Paris_)
"""


@pytest.mark.parametrize("text", MARKED.strip().splitlines())
def test_markup_around_a_word_does_not_hide_it(text):
    assert score("contains_answer", "Paris", text) == 1
    assert score("contains_answer", "Pari", text) == 0


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("New York", "New _York_", 1),
        ("New York", "<i>New</i> <b>York</b>", 1),
        ("New York", "\\textbf{New} York", 1),
        ("北京市", "**北京**市", 1),
        ("__init__", "the method `__init__`", 1),
        ("__init__", "init", 0),
        ("snake_case", "**snake_case**", 1),
        ("snake", "snake_case", 0),
        ("23", "2*3", 0),
        ("2 * 3", "it is 2 * 3", 1),
        ("*", "a * b", 1),
        ("a<b", "if a<b and c>d", 1),
    ],
)
def test_marks_within_a_name_or_between_numbers_are_no_markup(answer, text, expected):
    assert score("contains_answer", answer, text) == expected


COMPOUND = """
1/2
1 / 2
2/1
-1/2
½
2½
2 1/2
1–2
1—2 or 2-1
1:2
2:1
1:2:3
1/2/2020
2020-1-2
1.2.3
2^1
2¹
1^2
1²
1e-2
1^-2
2.1
.1
"""


@pytest.mark.parametrize("text", COMPOUND.strip().splitlines())
def test_a_number_is_not_found_in_a_fraction_range_time_date_version_or_power(text):
    for sentence in (text, f"It is {text}.", f"**{text}** km", f"({text})"):
        assert score("contains_answer", "1", sentence) == 0, sentence
        assert score("contains_answer", text, sentence) == 1, sentence


@pytest.mark.parametrize("text", ["1", "1.", "1: yes", "1, 2", "1,2,3", "(1)", "1-fold", "$1", "1 %", "x=1", "2 or 1"])
def test_a_number_next_to_words_and_punctuation_is_whole(text):
    assert score("contains_answer", "1", text) == 1


def test_exact_match_ignores_only_the_white_space_around():
    assert score("exact_match", " a b\n", "a b") == 1
    assert score("exact_match", "a b", "a  b") == 0
    assert score("exact_match", "Paris", "paris") == 0


@given(one=texts, other=texts)
def test_similarity_is_the_ratio_of_difflib(one, other):
    assert score("similarity", one, other) == difflib.SequenceMatcher(None, one, other).ratio()


@pytest.mark.slow
def test_similarity_of_long_texts_is_bounded_from_above_by_difflib():
    one, other = ("".join(chr(0x4E00 + n * step % 997) for n in range(30_000)) for step in (1, 3))
    assert 0 <= score("similarity", one, other) < 0.01
    assert score("similarity", one, one) == 1
