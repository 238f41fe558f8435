from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_samples import HOSTILE
from support.cpu_seconds import at_most

from pytest_agentbench.metrics.registry import BUILTIN_METRICS, METRICS, V1_METRICS, asks_model, takes_trace
from pytest_agentbench.metrics.scoring import score

PLAIN = sorted(name for name in BUILTIN_METRICS if not asks_model(METRICS[name]) and not takes_trace(METRICS[name]))
EACH = [(name, None) for name in PLAIN] + [(name, "v1") for name in sorted(V1_METRICS)]
SYMMETRIC = ("exact_match", "f1_score", "rouge_score")

parts = (
    *("(", ")", "B", "a ", "the answer is ", "Answer: ", "1,234", "-", "%", "1e9", "/", "0", ".", "####", "^", " to "),
    *(
        "\\frac{1}{2}",
        "\\boxed{",
        "}",
        '{"a": ',
        "[",
        "]",
        "```\n",
        "\n",
        "$",
        "é",
        "e\u0301",
        "\u0301",
        "½",
        "²",
        "３",
    ),
    *(
        "北京",
        "。",
        "東京タワー",
        "ですか",
        "สวัสดี",
        "हिन्दी",
        "서울",
        "👍🏽",
        "\u200d",
        "\ud800",
        "\x00",
        "ß",
        "İ",
        "\u2028",
    ),
)
texts = st.text(st.characters(), max_size=40) | st.lists(st.sampled_from(parts), max_size=12).map("".join)
without_digits = texts.map(lambda text: "".join(c for c in text if not c.isnumeric() and c not in "\\#"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# For each metric the texts that hold what it reads, so that they must agree with themselves.
CARRYING = {
    "bleu_score": texts.map(lambda text: f"x {text}"),
    "contains_answer": texts.map(lambda text: f"x{text}"),
    "json_match": json_values.map(json.dumps),
    "math_equal": texts.filter(str.strip),
    "multiple_choice": st.sampled_from(["B", "(b)", "**B**", "The answer is (B)", "答案是B", "\\boxed{B}", "B. Paris"]),
    "numeric_match": st.tuples(without_digits, st.integers() | st.floats(-1e9, 1e9)).map(lambda p: f"{p[0]} {p[1]}"),
    "rouge_score": texts.map(lambda text: f"x {text}"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compat"), EACH)
@given(ground_truth=texts, prediction=texts)
def test_a_score_is_between_0_and_1_for_any_texts(name, compat, ground_truth, prediction):
    if name == "math_equal":
        prediction = prediction[:8]  # what takes seconds is tried elsewhere
    try:
        assert 0 <= score(name, ground_truth, prediction, compat=compat) <= 1
    except ValueError as error:
        assert name in ("json_match", "math_equal", "multiple_choice")
        assert f"{name}: the ground truth" in str(error)  # noqa: PT017  not every ground truth is wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
def test_a_text_agrees_with_itself(name, data):
    text = data.draw(CARRYING.get(name, texts))
    assert score(name, text, text) == 1


@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"exact_match", "similarity", "pass_at_k", "pass_hat_k"}))
def test_thoughts_are_no_part_of_the_answer(name):
    text = {"json_match": "[1]", "math_equal": "$1+x$", "multiple_choice": "B", "numeric_match": "7"}.get(name, "Paris")
    for thoughts in ("<think>Is it 3, A or {}?</think>\n\n", "Is it $2$?\n</think>", "<thinking>\n</thinking> "):
        assert score(name, text, thoughts + text) == 1
    if name != "multiple_choice":
        assert score(name, text, f"<think>{text}") == 0


@pytest.mark.parametrize("name", SYMMETRIC)
@given(one=texts, other=texts)
def test_the_sides_may_change_places(name, one, other):
    assert score(name, one, other) == pytest.approx(score(name, other, one))


@pytest.mark.parametrize("name", ["exact_match", "f1_score", "bleu_score", "rouge_score", "contains_answer"])
def test_other_words_score_nothing(name):
    assert score(name, "Paris", "London") == 0


@pytest.mark.parametrize(("name", "compat"), EACH)
def test_threads_do_not_change_scores(name, compat):
    pairs = [(f"[{n}, {n % 7}]", f"[{n % 5}, {n % 3}]") for n in range(40)]
    if name == "multiple_choice":
        pairs = [("ABC"[n % 3], "CAB"[n % 2]) for n in range(40)]

    def scored(pair):
        return score(name, *pair, compat=compat)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(scored, pairs)) == [scored(pair) for pair in pairs]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compat"), EACH)
def test_long_texts_take_two_seconds_at_most(name, compat):
    reads_both = name not in ("json_match", "math_equal", "multiple_choice")
    ground_truth = "B" if name == "multiple_choice" else "1"
    score(name, ground_truth, "1", compat=compat)  # libraries are imported at the first
    for kind, text in HOSTILE.items():
        if name == "math_equal" and kind not in ("digits", "nines"):
            continue  # others reach its limit of seconds, which has a test of its own
        with at_most(2, kind):
            score(name, ground_truth, text, compat=compat)
            if reads_both:
                score(name, text, text[1:] + "1", compat=compat)
