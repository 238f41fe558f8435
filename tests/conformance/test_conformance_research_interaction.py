"""The original's web interaction, row by row, from `agentbench research interaction --compat`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.cli import main

DATA = Path(__file__).parents[3] / "shared" / "data" / "research"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data: {DATA} is not there")

GOLDEN = DATA / "golden_examples" / "web_interaction.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text().splitlines()] if GOLDEN.exists() else []


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if isinstance(value, dict):
            same(found[name], value)
        else:
            assert found[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


def tasks() -> list[dict[str, Any]]:
    """The rows with articles as long as they were, each with a prompt of its own, as all have the same three words."""
    found = []
    for number, row in enumerate(ROWS):
        task = dict(row["task"])
        words, word = task.pop("article_words", 0), task.pop("article_repeat", "")
        found.append({**task, "prompt": f"p q r{number}", "article": task["article"] or " ".join([word] * words)})
    return found


def test_every_row_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks()))
    options = ["--annotation_dir", str(DATA / "poet_annotation_code_format"), "--output_dir", str(tmp_path), "--compat"]
    assert main(["research", "interaction", "--input_file", str(file), *options]) == 0
    result = json.loads((tmp_path / "web_interaction_report.json").read_text())
    assert (result["n_total"], result["n_scored"], len(ROWS)) == (5, 5, 5)
    for found, row in zip(result["results"], ROWS, strict=True):
        same(found, {name: row[name] for name in ("metrics", "efficiency", "strategic", "summary", "valid")})
        assert found["metrics"].keys() == row["metrics"].keys()
        assert found["summary"].keys() == row["summary"].keys()


def test_without_compat_nothing_is_made_up(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(json.dumps(tasks()[0]) + "\n")
    assert main(["research", "interaction", "--input_file", str(file), "--output_dir", str(tmp_path)]) == 0
    [found] = json.loads((tmp_path / "web_interaction_report.json").read_text())["results"]
    known = {name: value for name, value in found["metrics"].items() if value is not None}
    assert known == {"task_id": "0", "task_title": "", "model_name": "m"}
    assert set(found["efficiency"].values()) == set(found["strategic"].values()) == {None}
    assert not found["valid"]
