"""Serve a judge on loopback for all requests of `agentbench research run`, and write a project in two languages.

A line `- <statement> [<marker>] <url>` of an article is a statement with a citation. It is supported if the page has
it, and it is a unit of knowledge that was reused if the judge is asked for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.race_judge import RaceJudge, Shown

from pytest_agentbench.packs.research.arithmetic import STRATEGIC_SCORES

_CITED = re.compile(r"^- (?P<fact>.*?) \[(?P<ref_idx>\d+)\] (?P<url>https?://\S+)$", re.MULTILINE)
PROMPTS = {1: "When do owls hunt? An answer is worth 5.", 2: "茶叶的价格是多少？(worth 5)"}
METRICS = {
    "total_duration_seconds": 1800,
    "token_usage": {"input_tokens": 2000, "output_tokens": 6000, "total_cost_usd": 4.0},
    "automation_level": 0.5,
}


class ReportJudge(RaceJudge):
    """A judge of all stages, with the options of RaceJudge."""

    def _extract(self, shown: Shown) -> dict[str, Any]:
        return {"citations": _statements(shown["article"])}

    def _deduplicate(self, shown: Shown) -> dict[str, Any]:
        return {"kept": list(range(len(_facts(shown))))}

    def _validate(self, shown: Shown) -> dict[str, Any]:
        labels = ["supported" if fact in shown["page"] else "unsupported" for fact in _facts(shown)]
        return {"results": [{"idx": n, "reason": "Read.", "result": label} for n, label in enumerate(labels)]}

    def _strategic(self, shown: Shown) -> dict[str, Any]:
        return {name: {"reason": "Read.", "score": 4} for name in STRATEGIC_SCORES}

    def _knowledge(self, shown: Shown) -> dict[str, Any]:
        return {"units": [{"text": each["fact"], "quality": 0.5} for each in _statements(shown["article"])]}

    def _reuse(self, shown: Shown) -> dict[str, Any]:
        return {"reused": [json.loads(line)["id"] for line in shown["known knowledge"].splitlines()]}


def _statements(article: str) -> list[dict[str, str]]:
    return [each.groupdict() for each in _CITED.finditer(article)]


def _facts(shown: Shown) -> list[str]:
    return [json.loads(line)["fact"] for line in shown["statements"].splitlines() if line.startswith('{"idx": ')]


def article(quality: float, cited: Mapping[str, Sequence[str]]) -> str:
    """Return a report of this quality with statements by the address of their page."""
    statements = [(fact, url) for url, facts in cited.items() for fact in facts]
    lines = (f"- {fact} [{number}] {url}" for number, (fact, url) in enumerate(statements, 1))
    return f"A report of quality {quality}.\n" + "".join(f"{line}\n" for line in lines)


def write_project(folder: Path, models: Mapping[str, Mapping[int, str]]) -> None:
    """Write the files below `data/` and the raw queries of an empty folder. `models`: articles by model and query."""
    queries = [
        {"id": number, "prompt": prompt, "domain": "finance", "complexity_level": 3}
        for number, prompt in PROMPTS.items()
    ]
    _rows(folder / "data/prompt_data/query.jsonl", queries)
    references = [{"id": each["id"], "prompt": each["prompt"], "article": "A text of quality 5."} for each in queries]
    _rows(folder / "data/reference/reference.jsonl", references)
    for model, articles in models.items():
        reports = [
            {"id": number, "prompt": PROMPTS[number], "article": text, "execution_metrics": METRICS}
            for number, text in articles.items()
        ]
        _rows(folder / f"data/test_data/raw_data/{model}.jsonl", reports)
    annotations: dict[str, Any] = {
        "domain_expert": {"finance": {"avg_task_time_hours": 2, "avg_hourly_rate_usd": 100}},
        "complexity_level": {"3": {"expert_time_multiplier": 1.0, "difficulty_score": 3}},
        "token_pricing": {model: {"input_price_per_1k": 0.5, "output_price_per_1k": 0.5} for model in models},
    }
    for name, content in annotations.items():
        _write(folder / f"data/annotation/{name}_data.json", json.dumps(content))
    raw = (f'#### **Query {number}: title**\n"{prompt}"\n' for number, prompt in PROMPTS.items())
    _write(folder / "query_analysis/raw_query.md", "\n".join(raw))


def _rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
