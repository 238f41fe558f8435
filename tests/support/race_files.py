"""Write files for `agentbench research race` in the seed's layout: reports, queries, criteria and references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

PROMPTS = {1: "What is tea?", 2: "中国的茶叶市场有多大？", 3: "What is coffee?"}
WEIGHTS = dict(zip(RACE_DIMENSIONS, (0.4, 0.3, 0.2, 0.1), strict=True))


def lay_out() -> None:
    """Write the files into the current folder: articles of quality 6, 4, 1, references of quality 4."""
    write("data/prompt_data/query.jsonl", *({"id": n, "prompt": text} for n, text in PROMPTS.items()))
    write("data/criteria_data/criteria.jsonl", *map(criteria, PROMPTS))
    write("data/reference/reference.jsonl", *(row(n, "A reference [1] of quality 4.") for n in PROMPTS))
    qualities = {1: 6, 2: 4, 3: 1}
    write(reports(), *(row(n, f"An article [1] of quality {quality}.") for n, quality in qualities.items()))


def reports(model: str = "gpt") -> str:
    return f"data/test_data/raw_data/{model}.jsonl"


def row(number: int | str, article: str, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": PROMPTS.get(number, f"Question {number}?"), "article": article, **fields}


def criteria(number: int, **changed: Any) -> dict[str, Any]:
    weights = {"Breadth": 0.7, "Depth (in full)": 0.3}
    each = [{"criterion": name, "explanation": "Look.", "weight": weight} for name, weight in weights.items()]
    criterions = dict.fromkeys(RACE_DIMENSIONS, each)
    return {"id": number, "prompt": PROMPTS[number], "dimension_weight": WEIGHTS, "criterions": criterions} | changed


def write(path: Path | str, *rows: dict[str, Any] | str) -> None:
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in rows)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
