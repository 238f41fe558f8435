from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("ground_truth", ["", "Paris"])
def test_a_ground_truth_without_an_expression_is_an_error(ground_truth):
    result = measure(MetricSpec(name="math_equal"), ground_truth, "3", METRICS)
    assert "holds no mathematical expression" in result.error


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
