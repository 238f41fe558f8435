"""Write a project with research reports for tests of sessions and of files, and script its judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pytest_agentbench.packs.research.arithmetic import STRATEGIC_SCORES
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

PROMPTS = {1: "How do chips change prices in Europe?", 2: "芯片如何改变欧洲的价格？"}
PAGE = "https://site.test/chips"
METRICS = {
    "total_duration_seconds": 1800,
    "token_usage": {"input_tokens": 2000, "output_tokens": 6000, "total_cost_usd": 4.0},
    "automation_level": 0.5,
}
"""Metrics that save 75 % of an expert's 2 hours and 98 % of the cost, at 100 USD an hour."""

REPLIES: dict[str, Any] = {
    "extract": {"citations": [{"fact": "Chips cost more.", "ref_idx": "1", "url": PAGE}]},
    "validate": {"results": [{"idx": 0, "reason": "It says so.", "result": "supported"}]},
    "strategic": {name: {"reason": "Sound.", "score": 4} for name in STRATEGIC_SCORES},
    "knowledge": {"units": [{"text": "Chips cost more.", "quality": 0.75}]},
    "reuse": {"reused": []},
}
"""The judge's replies at all stages except `race`."""


def race_reply(target: float = 6, reference: float = 4) -> dict[str, Any]:
    """Return a reply with scores of every criterion."""
    return {
        name: [
            {
                "criterion": f"{name} of it",
                "analysis": "As asked.",
                "article_1_score": target,
                "article_2_score": reference,
            }
        ]
        for name in RACE_DIMENSIONS
    }


def report(number: int, page: str = PAGE, **fields: Any) -> dict[str, Any]:
    """Return a row of a file of reports that cites the page: ten words, among them those of PAGE."""
    article = f"Chips cost more in all Europe [1].\n\n[1] {page}"
    row = {"id": number, "prompt": PROMPTS[number], "article": article, "execution_metrics": METRICS, **fields}
    return {name: value for name, value in row.items() if value is not None}


def query(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": PROMPTS[number], "topic": "Business", "complexity_level": 3, **fields}


def criteria(number: int, **fields: Any) -> dict[str, Any]:
    criterions = {name: [{"criterion": f"{name} of it", "explanation": "", "weight": 1.0}] for name in RACE_DIMENSIONS}
    weights = dict(zip(RACE_DIMENSIONS, (0.4, 0.3, 0.2, 0.1), strict=True))
    row = {"id": number, "prompt": PROMPTS[number], "dimension_weight": weights, "criterions": criterions}
    return {**row, **fields}


def reference(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": PROMPTS[number], "article": "Prices are higher.", **fields}


class ResearchProject:
    """Files of one reports.yaml below `folder`; all parts can be scored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows("raw/gpt.jsonl", report(1), report(2))
        self.rows("query.jsonl", query(1), query(2))
        self.rows("criteria.jsonl", criteria(1), criteria(2))
        self.rows("reference.jsonl", reference(1), reference(2))
        self.json(
            "annotation/domain_expert_data.json", {"finance": {"avg_task_time_hours": 2, "avg_hourly_rate_usd": 100}}
        )
        levels = {str(n): {"expert_time_multiplier": 1.0, "difficulty_score": n} for n in range(1, 6)}
        self.json("annotation/complexity_level_data.json", levels)
        self.json(
            "annotation/token_pricing_data.json", {"gpt": {"input_price_per_1k": 0.5, "output_price_per_1k": 0.5}}
        )
        self.settings: dict[str, Any] = {
            "schema_version": 1,
            "name": "drb",
            "reports": ["raw/*.jsonl"],
            "queries": "query.jsonl",
            "criteria": "criteria.jsonl",
            "references": "reference.jsonl",
            "annotations": "annotation",
            "domain_map": {"Business": "finance"},
        }
        self.reports()
        self.script()

    def rows(self, name: str, *rows: Mapping[str, Any] | str) -> Path:
        lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
        return self.write(name, "".join(f"{line}\n" for line in lines))

    def json(self, name: str, value: Any) -> Path:
        return self.write(name, json.dumps(value))

    def reports(self, **fields: Any) -> Path:
        """Write reports.yaml with these fields changed for good; None removes one."""
        self.settings |= fields
        shown = {name: value for name, value in self.settings.items() if value is not None}
        return self.write("reports.yaml", yaml.safe_dump(shown, allow_unicode=True))

    def script(self, researches: Mapping[str, Any] | None = None, **fields: Any) -> Path:
        """Write the scripted judge: 6 against 4 in RACE, every citation supported, 4 of 5 in other stages."""
        said = {
            "research": {**REPLIES, "race": race_reply()},
            "researches": dict(researches or {}),
            "web_fetch": {PAGE: "Chips cost more, and more of them are sold."},
            **fields,
        }
        return self.write("reports.demo.yaml", yaml.safe_dump({"schema_version": 1, **said}, allow_unicode=True))

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path


def judge_answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a judge on loopback at each stage."""
    stage = body["response_format"]["json_schema"]["name"].removeprefix("research_")
    said = race_reply() if stage == "race" else REPLIES[stage]
    return {"role": "assistant", "content": json.dumps(said)}


def is_judge(body: dict[str, Any]) -> bool:
    """Return whether a request is for a judge."""
    return "research_" in json.dumps(body.get("response_format", ""))
