"""The reference's own cases and data sets, unmodified, against `agentbench serve` on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

DATA = Path(__file__).parents[3] / "shared" / "data"
CONFIG = DATA / "config"

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
    scripts = tmp_path_factory.mktemp("scripts")
    for number, (text, answer) in enumerate(ANSWERS.items()):
        folder = scripts / str(number)
        folder.mkdir()
        replies = [{"matches": rf"\A(?!.*<<<DATA)(?s:.*){re.escape(text)}", "content": answer}]
        (folder / "demo.yaml").write_text(yaml.safe_dump({"schema_version": 1, "replies": replies}))
    command = [sys.executable, "-m", "pytest_agentbench.cli", "serve", str(scripts), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        assert server.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/v1", server.stdout.readline())
        assert match is not None
        yield match[0]
        server.terminate()


def run(endpoint: str, root: Path, output: Path, *args: str) -> dict[str, object]:
    """The report.json of a session below `root`."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environ |= {"OPENAI_BASE_URL": endpoint, "OPENAI_API_KEY": "no-key-needed"}
    command = [sys.executable, "-m", "pytest", f"--rootdir={root}", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, *args, f"--agentbench-output={output}"], env=environ, cwd=root, capture_output=True, text=True
    )
    assert (output / "report.json").is_file(), done.stdout + done.stderr
    report: dict[str, object] = json.loads((output / "report.json").read_text())
    return report


def outcomes(report: dict[str, object]) -> dict[str, str]:
    return {row["case_id"]: row["outcome"] for row in report["runs"]}  # type: ignore[attr-defined]


def test_the_minimal_tree_runs_its_suite_with_its_default_run_profile(endpoint: str, tmp_path: Path) -> None:
    """The suite's model, message files, an attachment, a hook that the default policy skips."""
    report = run(
        endpoint, CONFIG / "minimal", tmp_path, "cases", "--agentbench-suite=example_suite",
        "--agentbench-run-profile=default",
    )  # fmt: skip
    (row,) = report["runs"]  # type: ignore[misc,attr-defined]
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
    (skipped,) = (row for row in report["runs"] if row["outcome"] == "skipped")  # type: ignore[attr-defined]
    assert "openclaw" in skipped["message"]


@pytest.mark.parametrize(
    ("file", "passed", "total"), [("math_demo", 1, 1), ("rag_benchmark", 1, 10), ("web_benchmark", 1, 5)]
)
def test_data_sets_run_as_they_are(endpoint: str, tmp_path: Path, file: str, passed: int, total: int) -> None:
    """Rows without a scripted answer are errors of the endpoint, wrong answers are failures."""
    report = run(endpoint, DATA, tmp_path, f"datasets/{file}.jsonl", "--model=m")
    counts = report["totals"]
    assert (counts["passed"], counts["runs"]) == (passed, total)  # type: ignore[index]
    if file == "rag_benchmark":
        assert outcomes(report)["datasets/rag_benchmark.task_003"] == "failed"
