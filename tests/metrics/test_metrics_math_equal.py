from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from metrics_samples import reported

from pytest_agentbench.metrics import math_equal as math_process
from pytest_agentbench.metrics.registry import METRICS, measure
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "expected"),
    [
        ("1/2", "0.5", 1),
        ("\\frac{1}{2}", "The answer is $\\frac{2}{4}$.", 1),
        ("1/3", "0.333333", 1),
        ("1,234", "1234", 1),
        ("1e3", "1000", 1),
        ("1e3", "$10^3$", 1),
        ("0.1", "0.2", 0),
        ("50%", "0.5", 1),
        ("x+1", "$1+x$", 1),
        ("x^2-1", "(x-1)(x+1)", 1),
        ("2x", "2", 0),
        ("x", "$y$", 0),
        ("(1,2)", "$(1, 2)$", 1),
        ("\\{1,2\\}", "$\\{2, 1\\}$", 1),
        ("sqrt(2)", "\\sqrt{2}", 1),
        ("2\\pi", "$\\pi + \\pi$", 1),
        ("pi", "\\pi", 1),
        ("5", "5\\text{ cm}", 1),
        ("x=5", "5", 1),
        ("3", "It is 7, no: \\boxed{3}. Done", 1),
        ("3", "", 0),
        ("3", "I do not know", 0),
        ("3", "\ud800", 0),
        ("Paris", " Paris ", 1),
        ("3", "(" * 20 + "3", 0),
    ],
)
def test_expressions_agree_by_value(ground_truth, prediction, expected):
    assert score("math_equal", ground_truth, prediction) == expected


VECTORS = Path(__file__).parents[1] / "data" / "math_vectors.jsonl"
GOLDS = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]


def test_a_gold_matches_its_spellings_and_no_other_sign_element_or_order():
    for row in GOLDS:
        gold = row["gold"]
        for prediction in (gold, f"\\boxed{{{gold}}}", *row["right"]):
            assert score("math_equal", gold, prediction) == 1, (gold, prediction)
        for prediction in row["wrong"]:
            assert score("math_equal", gold, prediction) == 0, (gold, prediction)


def test_there_are_two_hundred_golds():
    assert len({row["gold"] for row in GOLDS}) >= 200


@pytest.mark.parametrize(("row", "prediction"), reported("math_equal"))
def test_rows_of_public_reports_are_scored_right(row, prediction):
    assert score("math_equal", row["answer"], prediction) == row["want"]


COMPARISONS = [
    ("7", "**7**", 1),
    ("7", "Answer: 7", 1),
    ("7", "<answer>7</answer>", 1),
    ("7", "5 + 2 = 7\n#### 7", 1),
    ("5 + 2 = 7\n#### 7", "7", 1),
    ("7", "So it is 5 + 2 = 7.", 1),
    ("1, 2", "#### Solution\nThe roots are $2$ and $1$.", 1),
    ("Yes", "It holds.\n#### Yes", 1),
    ("3", "There are 3 apples", 1),
    ("31", "It is - 31", 0),
    ("1, 2", "The roots are $1$ and $2$, as $1 + 2 = 3$.", 0),
    ("1, 2", "As $x > 0$, the roots are $1$ and $2$.", 1),
    ("5", "The answer is $5$ because $x = 3$.", 1),
    ("-31", "The answer is:\n$$\n- 31\n$$", 1),
    ("(3, 4)", "(x, y) = (3, 4)", 1),
    ("100, 200", "\\boxed{100,200}", 1),
    ("100,200", "\\boxed{100200}", 1),
    ("(100,200)", "\\boxed{100200}", 0),
    ("[1, 2, 3]", "(1, 2, 3)", 1),
    ("5:1", "\\frac{5}{1}", 0),
    ("0:1", "0:2", 0),
    ("12_{10}", "12", 1),
    ("101_2", "5", 0),
    ("x_1", "x_2", 0),
    ("$x$-axis", "\\boxed{y\\text{-axis}}", 0),
    ("$x$-axis", "\\boxed{x\\text{-axis}}", 1),
    ("Paris", "The capital is Paris", 0),
    ("Yes", "The answer is yes.", 1),
    ("5 apples", "5", 1),
    ("10!", "3628800", 1),
    ("10²³", "$10^{23}$", 1),
    ("x²", "x^{2}", 1),
    ("10⁻²", "0.01", 1),
    ("4210₇", "\\boxed{4210_{7}}", 1),
    ("1½", "1.5", 1),
    ("a_{1}^{2}", "a_{12}", 0),
    ("2**10", "1024", 1),
    ("sin(x)", "$\\sin(x)$", 1),
    ("\\{x|x>2\\}", "\\{x | x > 2\\}", 1),
]


def test_answers_in_different_notations_are_compared_by_value():
    for ground_truth, prediction, expected in COMPARISONS:
        assert score("math_equal", ground_truth, prediction) == expected, (ground_truth, prediction)


def test_a_reply_that_goes_on_with_a_further_question_answers_first():
    reply = "So \\boxed{1, -2}.\n\nQuestion: And now?\n\\boxed{3}"
    result = measure(MetricSpec(name="math_equal"), "-2, 1", reply, METRICS)
    assert (result.score, result.details) == (1, {"run_on": True})


@pytest.mark.parametrize("ground_truth", ["", "  \n"])
def test_an_empty_ground_truth_is_an_error(ground_truth):
    result = measure(MetricSpec(name="math_equal"), ground_truth, "3", METRICS)
    assert "holds no mathematical expression" in result.error


@pytest.mark.slow
def test_all_comparisons_of_one_answer_share_a_limit():
    slow = ", ".join(f"({n}+x+y)^{{30}}" for n in range(1, 40))  # one or two seconds each
    result = measure(MetricSpec(name="math_equal"), "\\sqrt{2}, 3", slow, METRICS)
    assert (result.score, result.details) == (0, {"reason": "comparing took more than 5 seconds of CPU"})


@pytest.mark.slow
@pytest.mark.parametrize("hostile", ["$9^{9^{9^{9}}}$", "\\boxed{10000000!}", "$" + "(" * 9_000 + "$"])
def test_a_prediction_that_takes_too_long_scores_0_and_harms_nothing_after_it(hostile):
    begun = time.monotonic()
    result = measure(MetricSpec(name="math_equal"), "2", hostile, METRICS)
    assert (result.score, result.details) == (0, {"reason": "comparing took more than 5 seconds of CPU"})
    assert time.monotonic() - begun < 60
    assert score("math_equal", "x+1", "$1+x$") == 1


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_and_the_next_one_is_new():
    assert score("math_equal", "x+1", "$1+x$") == 1
    worker = math_process._shared
    worker._log.write(b"Aborted")
    os.kill(worker._process.pid, signal.SIGKILL)
    result = measure(MetricSpec(name="math_equal"), "x+1", "$1+x$", METRICS)
    assert result.score is None
    assert result.error.endswith("math_equal: its process ended with status -9: Aborted")
    assert score("math_equal", "x+1", "$1+x$") == 1


@pytest.mark.slow
def test_threads_share_one_process():
    scores = {}

    def compare(n):
        scores[n] = score("math_equal", f"{n}x", f"$x \\cdot {n - n % 2}$")

    threads = [threading.Thread(target=compare, args=(n,)) for n in range(2, 22)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == {n: float(n % 2 == 0) for n in range(2, 22)}


SESSION = """
from pytest_agentbench.metrics import math_equal as math_process
from pytest_agentbench.metrics.scoring import score
assert score("math_equal", "x+1", "$1+x$") == 1
print(math_process._shared._process.pid)
"""


@pytest.mark.slow
def test_the_process_ends_with_the_session():
    command = [sys.executable, "-W", "error", "-c", SESSION]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="environments of processes are not to be seen here")
def test_the_process_gets_no_keys(monkeypatch):
    math_process._shared.close()
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    score("math_equal", "x+1", "$1+x$")
    environ = Path(f"/proc/{math_process._shared._process.pid}/environ").read_text()
    assert "PATH=" in environ
    assert "secret" not in environ
