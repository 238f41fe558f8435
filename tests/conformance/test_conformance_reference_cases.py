"""The reference's own cases and data sets, unmodified, against `agentbench serve` on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance_support import CONFIG, DATA, asked, outcomes, run, served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the conformance data does not lie beside this checkout"),
]

ANSWERS = {
    "mini informe": "1. 2026-01-01 12:00:00\n2. Memoria: 42 MB (ejemplo)\n3. Escrito.\n4. Leído: tres líneas.",
    "email de seguimiento": "Le escribí hace tres semanas.\n\nPropongo una llamada.\n\nSin respuesta, cerraré el tema.",
    "Summarize the attached context": "The attached text asks for a summary of the conversation state.",
    "sqrt": "### Calculator Results:\nsqrt(144) + pow(3,4)/6 + sin(pi/6)*10 = 30.5\n",
    "capital of France": "Paris",
    "chemical symbol for gold": "The symbol is Au.",
    "Python programming language first released": "1991",
}
"""What the scripted model says to a message in which the text is found."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A base URL at which the scripts of a temporary folder answer."""
    replies = [{"matches": asked(text), "content": answer} for text, answer in ANSWERS.items()]
    with served(tmp_path_factory.mktemp("scripts"), replies) as url:
        yield url


def test_the_minimal_tree_runs_its_suite_with_its_default_run_profile(endpoint: str, tmp_path: Path) -> None:
    """The suite's model, message files, an attachment, a hook that the default policy skips."""
    report = run(
        endpoint, CONFIG / "minimal", tmp_path, "cases", "--agentbench-suite=example_suite",
        "--agentbench-run-profile=default",
    )  # fmt: skip
    (row,) = report["runs"]
    assert row["model_id"] == "baseline_model"
    assert row["outcome"] == "passed"
    assert {check["check_id"]: check["outcome"] for check in row["checks"]} == {
        "final-response-present": "passed",
        "local-python-hook": "skipped",
    }


def test_the_campaign_cases_run_and_the_openclaw_case_is_skipped_with_its_reason(endpoint: str, tmp_path: Path) -> None:
    report = run(
        endpoint, CONFIG / "campaigns", tmp_path, "cases", "--model=some/model",
        "--agentbench-run-profile=openrouter_minimax_smoke", "--agentbench-repetitions=1",
    )  # fmt: skip
    assert outcomes(report) == {
        "h1_tool_chain": "passed",
        "h4_email_constraints": "passed",
        "openclaw_smoke": "skipped",
    }
    (skipped,) = (row for row in report["runs"] if row["outcome"] == "skipped")
    assert "openclaw" in skipped["message"]


@pytest.mark.parametrize(
    ("file", "passed", "total"), [("math_demo", 1, 1), ("rag_benchmark", 1, 10), ("web_benchmark", 1, 5)]
)
def test_data_sets_run_as_they_are(endpoint: str, tmp_path: Path, file: str, passed: int, total: int) -> None:
    """Rows without a scripted answer are errors of the endpoint, wrong answers are failures."""
    report = run(endpoint, DATA, tmp_path, f"datasets/{file}.jsonl", "--model=m")
    counts = report["totals"]
    assert (counts["passed"], counts["runs"]) == (passed, total)
    if file == "rag_benchmark":
        ends = {name.rpartition("/")[2]: outcome for name, outcome in outcomes(report).items()}  # ids hold its folder
        assert ends["rag_benchmark.task_003"] == "failed"
