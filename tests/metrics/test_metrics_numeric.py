from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_samples import reported

from pytest_agentbench.metrics.numbers import answered_number
from pytest_agentbench.metrics.passages import without_run_on
from pytest_agentbench.metrics.registry import METRICS, measure
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec

ANSWERED = [
    ("The answer is 42.", "42"),
    ("1,234", "1234"),
    ("1 234", "1234"),
    ("1\u202f234", "1234"),
    ("1'234.5", "1234.5"),
    ("1’234", "1234"),
    ("10,\\!000", "10000"),
    ("1{,}234", "1234"),
    ("１,２３４", "1234"),
    ("٣", "3"),
    ("1,2,3", "3"),
    (".5", "0.5"),
    ("-.5", "-0.5"),
    ("1.5e3", "1.5e+3"),
    ("1.5×10^3", "1.5e+3"),
    ("1.5 \\times 10^{-3}", "0.0015"),
    ("1.5·10⁻³", "0.0015"),
    ("10^6", "1e+6"),
    ("18.29%", "18.29%"),
    ("18.29\\%", "18.29%"),
    ("50 percent", "50%"),
    ("3/4", "0.75"),
    ("½", "0.5"),
    ("1½", "1.5"),
    ("1 1/2 cups", "1.5"),
    ("\\frac{3}{4}", "0.75"),
    ("-\\dfrac34", "-0.75"),
    ("1\\frac{1}{2}", "1.5"),
    ("−7", "-7"),
    ("–7", "-7"),
    ("-$5", "-5"),
    ("$-5.00", "-5.00"),
    ("€ 1,234.50", "1234.50"),
    ("5 USD", "5"),
    ("USD5", "5"),
    ("x-5", "5"),
    ("答案是-5。", "-5"),
    ("第3个", "3"),
    ("25 m^2", "25"),
    ("25 m²", "25"),
    ("3 t of CO2", "3"),
    ("12.5 ± 0.3", "12.5"),
    ("1 234,5", "1234.5"),
    ("1.234,56 €", "1234.56"),
    ("1.234.567", "1234567"),
    ("3,5", "3.5"),
    ("0,333", "0.333"),
    ("₹12,34,567", "1234567"),
    ("١٬٢٣٤٫٥", "1234.5"),
    ("٥٠٪", "50%"),
    ("minus 5", "-5"),
    ("negative $5", "-5"),
    ("10 minus 5", "5"),
    ("负5", "-5"),
    ("マイナス3度", "-3"),
    ("5/6/2023", "5-6-2023"),
    ("2023-01-05", "2023-1-5"),
    ("Python 3.11.2", "3-11-2"),
    ("at 09:30", "9:30"),
    ("1:02:03", "1:2:3"),
    ("3 million", "3 million"),
    ("$2.5B", "2.5 b"),
    ("3-5 thousand", "3 to 5 thousand"),
    ("3万人", "3 万"),
    ("약 3억", "3 억"),
    ("between 3 and 4", "3 to 4"),
    ("3 and 4", "4"),
    ("36 inches (3 feet)", "36"),
    ("(36)", "36"),
    ("The chance with 2 dice is (1/6)", "0.166666666667"),
    ("12,000 people live there [1][2].", "12000"),
    ("[8]", "8"),
    ("The answer is 42. It took me 3 steps.", "42"),
    ("**Answer:** 42\n\nConfidence: 95%", "42"),
    ("**Final answer**\n\n42 apples\n\nIn 3 steps.", "3"),
    ("Answer:\n\n42 apples\n\nIn 3 steps.", "42"),
    ("The answer is 3 + 4 = 7.", "7"),
    ("The answer is clear. 5", "5"),
    ("答案是42。我用了3步", "42"),
    ("答えは42です。3分かかった", "42"),
    ("<think>7 or 8?</think>\n9 of them", "9"),
    ("The answer is $x = 25$", "25"),
    ("\\(x = 25\\)", "25"),
    ("10-20", "10 to 20"),
    ("10–20", "10 to 20"),
    ("$10 – $20", "10 to 20"),
    ("10 to 20 %", "10 to 20%"),
    ("-10 - -5", "-10 to -5"),
    ("10至20", "10 to 20"),
    ("20-10", "10"),
    ("9 of 10.\n#### 7\nSure of 100 %", "7"),
    ("#### 1,000 (of 3)", "1000"),
    ("So \\boxed{12}, for 3 reasons", "12"),
    ("\\boxed{1} then \\boxed{\\frac{1}{2}}", "0.5"),
    ("\\boxed{25\\text{ cm}^2", "25"),
    ("- 31", "-31"),
    ("− 31", "-31"),
    (" – 31 apples", "-31"),
    ("- $31", "-31"),
    ("- .5", "-0.5"),
    ("\\boxed{- 31}", "-31"),
    ("\\(- 31\\)", "-31"),
    ("It is $- 31$.", "-31"),
    ("The answer is - 31.", "-31"),
    ("Answer: - 31", "-31"),
    ("答案是 - 31", "-31"),
    ("x = - 31", "-31"),
    ("7\n#### - 31\n\nSure.", "-31"),
    ("- 1/2", "-0.5"),
    ("5$ - 31$", "31"),
    ("40 - 31", "31"),
    ("x - 31", "31"),
    ("- 30 of them\n- 31 of these", "31"),
    ("Options:\n- 31", "31"),
]


def test_the_number_that_a_text_answers_with():
    for text, number in ANSWERED:
        assert str(answered_number(text)) == number, (text, number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "1/0",
        "\\boxed{x} 5",
        "####",
        "2^10",
        "nan",
        "inf",
        "9e99999999999999999999",
        "<think>It is 7",
        "<think>It is 7</think>",
    ],
)
def test_texts_that_answer_with_no_number(text):
    assert answered_number(text) is None
    assert score("numeric_match", text, text) == 0


BY_VALUE = [
    ("1,234", "1234", 1),
    ("1234.0", "1,234", 1),
    ("18.29%", "18.29", 1),
    ("18.29%", "0.1829", 1),
    ("0.1829", "18.29%", 1),
    ("50%", "0.5%", 0),
    ("50", "0.5", 0),
    ("3000000", "3 million", 1),
    ("3", "3 million", 1),
    ("3000000", "3 M\u0130LL\u0130ON", 1),
    ("3 million", "3 billion", 0),
    ("1.5 billion", "1,500 million", 1),
    ("30000", "3万", 1),
    ("10:30", "It was 10:30.", 1),
    ("10:30", "11:30", 0),
    ("30", "10:30", 0),
    ("2023-05-06", "2023/5/6", 1),
    ("2023-05-06", "2022-05-06", 0),
    ("3.11.2", "3.12.2", 0),
    ("3.5", "between 3 and 4", 0),
    ("between 3 and 4", "3.5", 1),
    ("4", "between 3 and 4", 0),
    ("3/4", "0.75", 1),
    ("1/3", "0.333333", 1),
    ("1/3", "0.3333", 0),
    ("2.5", "2.500001", 1),
    ("1000000", "1000001", 0),
    ("1.6e-19", "9.1e-31", 0),
    ("10-20", "15", 1),
    ("10-20", "20", 1),
    ("10-20", "21", 0),
    ("10-20%", "0.15", 1),
    ("10 to 20", "10–20", 1),
    ("10-20", "12-18", 0),
    ("5", "3-5", 0),
    ("5", "It is 3, or 5", 1),
    ("5", "5 or 3", 0),
    ("0", "-0.0", 1),
    ("two", "2", 0),
    ("９", "nine: 9", 1),
    ("9e999999", "9e999999", 1),
    ("9e999999", "8e999999", 0),
    ("9" * 100_000, "9" * 100_000, 1),
    ("9" * 100_000, "9" * 99_999 + "8", 0),
]


def test_numbers_agree_by_value():
    for ground_truth, prediction, expected in BY_VALUE:
        assert score("numeric_match", ground_truth, prediction) == expected, (ground_truth, prediction)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("#### 10-20 items, 7 left", 10, 20),
        ("#### 10 to 20 to 30", 10, 10),
        ("#### 7, then 10-20", 7, 7),
        ("7 left of 10-20", 10, 20),
        ("10-20-30 is a chain, 5 to 6", 5, 6),
        ("from 30 to 20", 20, 20),
        ("between 5 and 6", 5, 6),
        ("5 and 6", 6, 6),
        ("2 1/2", 2.5, 2.5),
        ("-3 1/4", -3.25, -3.25),
        ("10^-2", 0.01, 0.01),
        ("3e2", 300, 300),
        ("1.5 x 10^3", 1500, 1500),
        ("$-5", -5, -5),
        ("1.234.567", 1_234_567, 1_234_567),
        ("1.234,5", 1234.5, 1234.5),
    ],
)
def test_of_several_numbers_the_answer_is_one_or_a_range(text, low, high):
    found = answered_number(text)
    assert (float(found.low), float(found.high)) == (low, high)


@pytest.mark.parametrize(
    ("power", "words"),
    [
        (-2, ("5 %", "5 percent", "5 per cent", "5 pct")),
        (3, ("5k", "5K", "5 thousand", "5千", "5 ألف")),
        (4, ("5万", "5萬", "5만")),
        (5, ("5 lakh", "5 लाख")),
        (6, ("5M", "5mn", "5 million", "5百万", "5 مليون")),
        (7, ("5 crore",)),
        (8, ("5億", "5亿", "5억")),
        (9, ("5B", "5bn", "5 billion", "5 مليار")),
        (12, ("5 trillion", "5兆")),
    ],
)
def test_words_for_powers_of_ten(power, words):
    for text in words:
        found = answered_number(text)
        assert (float(found.low), found.scale) == (5, power), text


@pytest.mark.parametrize(("row", "prediction"), reported("numeric_match"))
def test_rows_of_public_reports_are_scored_right(row, prediction):
    assert score("numeric_match", row["answer"], prediction) == row["want"]


@pytest.mark.parametrize(("row", "prediction"), reported("numeric_spaced_minus"))
def test_a_spaced_minus_of_public_reports_is_a_sign(row, prediction):
    assert score("numeric_match", row["answer"], prediction) == (row["id"] != "wrong")


RUN_ON = [
    "9 * 2 = 18\n#### 18\n\nQuestion: A robe takes 2 bolts. How many?\nAnswer: 2 + 1 = 3\n#### 3",
    "#### 18\nQ: How many?\nA: #### 3\nQ: And now?\nA: #### 4",
    "The answer is 18.\n\nQ: How many bolts?\nA: The answer is 3.",
    "So \\boxed{18}.\n\n**Question 2:** How many?\n\\boxed{3}",
    "#### $18 dollars\n\nA robe takes 2 bolts of blue fiber and half that. How many bolts is that?\n2 + 1 = 3\n#### 3",
    "答案是18。\n问题：多少？\n答案是3。",
    "La réponse: answer is 18\nHuman: and 2 + 1?\nThe answer is 3",
    "#### 18\n\nQuestion: A robe takes 2",
]


@pytest.mark.parametrize("reply", RUN_ON)
def test_a_reply_that_goes_on_with_a_further_question_answers_first(reply):
    result = measure(MetricSpec(name="numeric_match"), "18", reply, METRICS)
    assert (result.score, result.details) == (1, {"expected": "18", "found": "18", "run_on": True})


@pytest.mark.parametrize(
    "reply",
    [
        "#### 3\nWait, is that the right number of bolts that the robe takes?\nNo.\n#### 18",
        "#### 3\nIs it?\n#### 18",
        "#### 3\nDid I count the blue bolts of the robe twice here?\n#### 18",
        "#### 1. How to begin\nHow many bolts of blue fiber does the robe take in all?\n#### 18",
        "#### Step 1\nHow many bolts of blue fiber does the robe take in all?\n#### Step 2\n9 * 2\n#### 18",
        "Question: A robe takes 2 bolts. How many?\nAnswer: 9 * 2 = 18",
        "To answer this, let me restate it:\n\nQuestion: How many bolts are 9 * 2?\nAnswer: 18",
        "The answer: see below.\nQuestion: 9 * 2?\nThe answer is 18",
        "The answer is found by quartiles.\nQ1: 3\nQ3: 21\nSo the answer is 18",
        "#### 3\nor rather\n#### 18",
        "18",
    ],
)
def test_a_reply_that_corrects_itself_or_has_headings_does_not_run_on(reply):
    result = measure(MetricSpec(name="numeric_match"), "18", reply, METRICS)
    assert (result.score, result.details) == (1, {"expected": "18", "found": "18"})


@pytest.mark.parametrize(
    ("reply", "head"),
    [
        ("#### 1\nQ: 2?\n#### 3", "#### 1\n"),
        ("#### 1\n\nQuestion: 2?", "#### 1\n\n"),
        ("To answer this:\nQuestion: 2?\nAnswer: 3", None),
        ("Question: 2?\nAnswer: 3", None),
        ("Question: 2?\nAnswer: 3\nQuestion: 4?", "Question: 2?\nAnswer: 3\n"),
        ("no answer\nQ: 2?", None),
    ],
)
def test_a_reply_ends_before_a_question_that_follows_an_answer(reply, head):
    assert without_run_on(reply) == ((reply, False) if head is None else (head, True))


def test_tolerances():
    assert score("numeric_match", "100", "101", rel_tol=0.01) == 1
    assert score("numeric_match", "100", "102", rel_tol=0.01) == 0
    assert score("numeric_match", "0", "0.05", abs_tol=0.1) == 1
    for one, other in (("100", "110"), ("110", "100"), ("-100", "-110"), ("-110", "-100")):
        assert score("numeric_match", one, other, rel_tol=0.0909) == 0  # 10 of 110 are 9.0909 %
        assert score("numeric_match", one, other, rel_tol=0.091) == 1
        assert score("numeric_match", one, other, rel_tol=0.01, abs_tol=9.99) == 0
        assert score("numeric_match", one, other, rel_tol=0.01, abs_tol=10) == 1
    assert score("numeric_match", "2.5", "2.5000025") == 1  # a millionth of 2.5 is 0.0000025
    assert score("numeric_match", "2.5", "2.500003") == 0
    assert score("numeric_match", "2500000", "2500001") == 0  # whole numbers are equal or not
    assert score("numeric_match", "2.5", "2.500001", rel_tol=0) == 0
    for wrong in ({"rel_tol": -1}, {"abs_tol": float("nan")}, {"rel_tol": float("inf")}, {"abs_tol": "1"}):
        with pytest.raises(ValueError, match="expected a number from 0"):
            score("numeric_match", "1", "1", **wrong)


def test_the_numbers_that_were_read_are_in_the_details():
    result = measure(MetricSpec(name="numeric_match"), "10-20 %", "none", METRICS)
    assert (result.score, result.details) == (0, {"expected": "10 to 20%", "found": None})


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "It is {}.", "= ${}$", "{} %", "\\boxed{{{}}}"]))
def test_whole_numbers_are_equal_or_not(number, form):
    assert score("numeric_match", str(number), form.format(number)) == 1
    assert score("numeric_match", str(number), form.format(number + 1)) == 0


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions_equal_their_quotient(over, under):
    assert score("numeric_match", f"{over}/{under}", f"{float(Fraction(over, under))!r}") == 1


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_as_python_writes_them(number):
    value = answered_number(repr(number))
    assert value is not None
    assert float(value.low) == number
