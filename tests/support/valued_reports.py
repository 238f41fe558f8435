"""Write reports with their annotations, and the files of earlier stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.arithmetic import STRATEGIC_SCORES
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

METRICS = {
    "total_duration_seconds": 2700,
    "token_usage": {"input_tokens": 2000, "output_tokens": 1000, "total_cost_usd": 7.5},
    "automation_level": 0.9,
    "tool_calls_count": 8,
    "sources_used": 15,
    "citation_count": 22,
    "word_count": 8500,
}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def annotated_rows(folder: Path) -> list[dict[str, Any]]:
    """Return three reports, and write annotations below the folder in the layout of the seed."""
    annotation = folder / "data" / "annotation"
    annotation.mkdir(parents=True)
    for name, content in {
        "domain_expert": {"finance": {"avg_hourly_rate_usd": 200, "avg_task_time_hours": 2.5}},
        "complexity_level": {"4": {"expert_time_multiplier": 1.5, "difficulty_score": 4}},
        "token_pricing": {"gpt-4": {"input_price_per_1k": 0.01, "output_price_per_1k": 0.03}},
    }.items():
        (annotation / f"{name}_data.json").write_text(json.dumps(content))
    placed = {"article": "Because.", "domain": "finance", "complexity_level": 4, "execution_metrics": METRICS}
    return [{"id": number, "prompt": f"Why {number}?", **placed} for number in (1, 2, 3)]


def efficiency(rows: list[dict[str, Any]], *options: str) -> int:
    """Run the command on these reports of the model gpt. Return its exit status."""
    write_rows(Path("gpt.jsonl"), rows)
    return main(["research", "efficiency", "--input_file", "gpt.jsonl", *options])


def stage_results(rows: list[dict[str, Any]], results: Path = Path("results"), model: str = "gpt") -> None:
    """Write the results of race, fact and strategic: the first report scored, the second uncited, the third failed."""
    named = [{"id": row["id"], "prompt": row["prompt"]} for row in rows]
    scores = {**dict.fromkeys(RACE_DIMENSIONS, 0.5), "insight": 0.4, "overall_score": 0.5}
    raced = [{**name, **scores} for name in named[:2]]
    write_rows(results / "race" / model / "raw_results.jsonl", [*raced, {**named[2], "race_error": "judge is away"}])
    entries = [
        {"criterion": f"C{n}", "analysis": f"A{n}.", "article_1_score": n, "article_2_score": 7.0} for n in range(8)
    ]
    details = {name: entries if name == "insight" else [] for name in RACE_DIMENSIONS}
    write_rows(
        results / "race" / model / "race_details.jsonl",
        [{"id": 1, "draws": [{"overall_score": 0.5, "judge_details": details}]}],
    )
    labels = ["supported", "unsupported", "supported", "unknown", "Supported"]
    page = {
        "facts": [f"Fact {n}." for n in range(5)],
        "url_content": "Page.",
        "validate_res": [{"idx": n, "result": label} for n, label in enumerate(labels)],
    }
    cited = [{"https://x.example/": page}, {}, {}]
    checked = [{**row, "citations": [], "citations_deduped": pages} for row, pages in zip(rows, cited, strict=True)]
    checked[2] = {**rows[2], "extract_error": "the reply was cut"}
    write_rows(results / "fact" / model / "validated.jsonl", checked)
    strategic = {
        "strategic_score": 0.7,
        "scores": dict.fromkeys(STRATEGIC_SCORES, 3.5),
        "created": [{"id": "a", "text": "Tin.", "quality": 0.5}],
        "repeated": 0,
        "below_quality": 0,
        "reused": [],
        "knowledge_creation_value": 0.5,
    }
    found = [{**named[0], **strategic}, {**named[1], **strategic}, {**named[2], "strategic_error": "not JSON"}]
    path = results / "strategic" / model / "strategic_report.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"model": model, "results": found}))
