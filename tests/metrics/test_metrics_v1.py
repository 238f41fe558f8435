from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_samples import vectors

from pytest_agentbench.metrics.registry import V1_METRICS
from pytest_agentbench.metrics.scoring import score

NAMES = ("exact_match", "f1_score", "bleu_score", "rouge_score", "similarity", "contains_answer", "numeric_match")
words = st.lists(st.sampled_from(["a", "b", "c", "d", "B"]), max_size=12).map(" ".join)


def test_the_seven_original_metrics_have_an_original_definition():
    assert sorted(V1_METRICS) == sorted(NAMES)


@pytest.mark.skipif(not vectors(), reason="the conformance data is not here")
@pytest.mark.parametrize("name", NAMES)
def test_recorded_scores_of_the_original_are_met_bit_for_bit(name):
    for row in vectors():
        pair = row["ground_truth"], row["prediction"]
        assert score(name, *pair, compat="v1") == row["scores_v1_benchmark"][name], pair


@given(words, words)
def test_rouge_is_the_f1_of_the_textbook_table(one, other):
    expected, found = one.lower().split(), other.lower().split()
    table = [[0] * (len(found) + 1)]
    for token in expected:
        row = [0]
        for at, other_token in enumerate(found):
            row.append(table[-1][at] + 1 if token == other_token else max(row[-1], table[-1][at + 1]))
        table.append(row)
    common = table[-1][-1]
    wanted = 2 * common / (len(expected) + len(found)) if common else 0
    assert score("rouge_score", one, other, compat="v1") == pytest.approx(wanted)


@given(st.lists(st.floats(-50, 50).map(lambda x: f"{x:.7f}"), max_size=6), st.lists(st.integers(-50, 50), max_size=6))
def test_numeric_match_compares_any_number_with_any(expected, found):
    near = any(abs(float(one) - other) < 1e-6 for one in expected for other in found)
    wanted = near or not (expected or found)
    assert score("numeric_match", " ".join(expected), " ".join(map(str, found)), compat="v1") == wanted


def test_a_number_beyond_the_floats_equals_nothing():
    assert score("numeric_match", "9" * 400, "9" * 400, compat="v1") == 0
