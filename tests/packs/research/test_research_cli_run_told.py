"""What `agentbench research run` tells of two models, one with rows that are lost, and what it fetches for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.report_judge import ReportJudge, article, write_project
from support.research_site import Site

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow

RUN = ["research", "run", "--allow-private", "127.0.0.1"]
LOST = '{"id": 3, "prompt": "no article"}\nnot JSON\n'
UNKNOWN = {"id": 5, "prompt": "asked by nobody", "article": "A report of quality 3."}


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportJudge]:
    monkeypatch.chdir(tmp_path)
    with ReportJudge() as judge:
        judge.judge_for(monkeypatch)
        yield judge


def prepare(folder: Path, site: Site) -> None:
    cited = {f"{site.url}/owls": ["Owls hunt at night."], f"{site.url}/gone": ["Owls are gone."]}
    write_project(folder, {model: {1: article(8, cited), 2: article(6, cited)} for model in ("alpha", "beta")})


def test_lost_rows_are_reported_once(judge: ReportJudge, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Site({"/owls": "Owls hunt at night."}) as site:
        prepare(tmp_path, site)
        with (tmp_path / "data/test_data/raw_data/alpha.jsonl").open("a", encoding="utf-8") as file:
            file.write(LOST + json.dumps(UNKNOWN) + "\n")
        assert main(RUN) == 1
    printed = capsys.readouterr()
    raw, queries = "data/test_data/raw_data/alpha.jsonl", "data/prompt_data/query.jsonl"
    starts = [
        f"race alpha: line 3: {raw}:3:1: article: missing; add it",
        f"race alpha: line 4: {raw}:4:1: not valid JSON",
        f"race alpha: 5: {queries}: found no row with the prompt of 5",
        "poet alpha: 5: no composite: ",
    ]
    lines = printed.err.splitlines()
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    failed = {line.split()[0]: line.split()[2:] for line in printed.out.splitlines() if " alpha " in line}
    lost = {stage for stage, counts in failed.items() if counts == ["5", "2", "3"]}
    assert lost == {
        *("race", "extract", "deduplicate", "scrape", "validate", "stat"),
        "efficiency",
        "interaction",
        "poet",
    }
    assert failed["strategic"] == ["5", "3", "2"]


def test_a_page_is_asked_for_once_for_all_models(judge: ReportJudge, tmp_path: Path) -> None:
    with Site({"/owls": "Owls hunt at night."}) as site:
        prepare(tmp_path, site)
        assert main(RUN) == 0
        assert site.asked == {"/owls": 1, "/gone": 1}
        assert main(RUN) == 0
        assert site.asked == {"/owls": 1, "/gone": 2}


def test_stored_replies_are_not_counted_as_costs(
    judge: ReportJudge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Site({"/owls": "Owls hunt at night."}) as site:
        prepare(tmp_path, site)
        assert main(RUN) == 0
        first, asked = capsys.readouterr().out, sum(judge.asked.values())
        assert main(RUN) == 0
    again = capsys.readouterr().out
    [total] = [line.split() for line in first.splitlines() if line.startswith("total ")]
    assert total == ["total", str(asked), f"{10 * asked}", f"{5 * asked}", "?"]
    assert sum(judge.asked.values()) == asked
    assert "requests" not in again
    assert all(len(line) <= 80 for line in first.splitlines())


def test_requests_of_unknown_cost_are_reported_under_a_cost_limit(
    judge: ReportJudge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody knows what the judge costs."""
    write_project(tmp_path, {"alpha": {1: "A report of quality 6."}})
    assert main(["research", "race", "alpha", "--criteria_file", "none.jsonl", "--max-cost", "1"]) == 1
    assert "--max-cost" not in capsys.readouterr().out
    assert main(["research", "criteria", "--max-cost", "1"]) == 0
    told = "--max-cost did not count 18 requests of unknown cost; give the model prices in models.yaml"
    assert told in capsys.readouterr().out.splitlines()
