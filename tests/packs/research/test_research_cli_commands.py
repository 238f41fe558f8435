"""The commands of the original's instructions (seed 003), each with its own options, and the files they lead to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.report_judge import ReportJudge, article, write_project
from support.research_site import Site

from pytest_agentbench.cli import main

NETWORK = "--allow-private 127.0.0.1"
COMMANDS = f"""
select-queries --input_file query_analysis/raw_query.md --output_dir query_analysis/ --threshold 4.0 --export_selected --max_workers 8
select-queries --input_file query_analysis/raw_query.md --output_dir query_analysis/ --threshold 4.0 --convert_to_jsonl data/prompt_data/query.jsonl
select-queries --from_scores query_analysis/query_scores.json --threshold 4.5 --convert_to_jsonl data/prompt_data/query.jsonl
criteria
race "model_name" --raw_data_dir data/test_data/raw_data --query_file data/prompt_data/query.jsonl --output_dir results/race/model_name --max_workers 10
fact extract --raw_data_path data/test_data/raw_data/model_name.jsonl --output_path results/fact/model_name/extracted.jsonl --query_data_path data/prompt_data/query.jsonl --n_total_process 10
fact deduplicate --raw_data_path results/fact/model_name/extracted.jsonl --output_path results/fact/model_name/deduplicated.jsonl --query_data_path data/prompt_data/query.jsonl --n_total_process 10
fact scrape --raw_data_path results/fact/model_name/deduplicated.jsonl --output_path results/fact/model_name/scraped.jsonl --n_total_process 10 {NETWORK}
fact validate --raw_data_path results/fact/model_name/scraped.jsonl --output_path results/fact/model_name/validated.jsonl --query_data_path data/prompt_data/query.jsonl --n_total_process 10
fact stat --input_path results/fact/model_name/validated.jsonl --output_path results/fact/model_name/fact_result.txt
efficiency --input_file data/test_data/raw_data/model_name.jsonl --output_dir results/efficiency/model_name
strategic --input_file data/test_data/raw_data/model_name.jsonl --output_dir results/strategic/model_name
interaction --input_file data/test_data/raw_data/model_name.jsonl --output_dir results/web_interaction/model_name
poet "model_name" --config config/poet_algorithm_config.json --input_file data/test_data/raw_data/model_name.jsonl --output_dir results/poet/model_name
poet --config config/poet_algorithm_config.json
"""  # noqa: E501 - as they stand in the instructions
RESULTS = """
race/model_name/race_result.txt
fact/model_name/extracted.jsonl
fact/model_name/deduplicated.jsonl
fact/model_name/scraped.jsonl
fact/model_name/validated.jsonl
fact/model_name/fact_result.txt
efficiency/model_name/efficiency_report.json
strategic/model_name/strategic_report.json
web_interaction/model_name/web_interaction_report.json
poet/model_name/model_name_poet_detailed.json
poet/model_name/model_name_poet_summary.json
poet/model_name/model_name_poet_report.txt
"""
HELPED = (
    *("run", "select-queries", "criteria", "race", "efficiency", "strategic", "interaction", "poet", "convert", "lint"),
    *("fact", "fact extract", "fact deduplicate", "fact scrape", "fact validate", "fact stat"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with Site({"/owls": "Owls hunt at night.", "/tea": "茶很贵。"}) as site, ReportJudge() as judge:
        judge.judge_for(monkeypatch)
        articles = {
            1: article(8, {f"{site.url}/owls": ["Owls hunt at night.", "Owls sing."]}),
            2: article(6, {f"{site.url}/tea": ["茶很贵。"]}),
        }
        write_project(tmp_path, {"model_name": articles})
        (tmp_path / "config").mkdir()
        (tmp_path / "config/poet_algorithm_config.json").write_text("{}")
        yield tmp_path


@pytest.mark.slow
def test_each_command_and_each_file(project: Path) -> None:
    """Reports say their level, for query.jsonl has none."""
    reports = project / "data/test_data/raw_data/model_name.jsonl"
    rows = [json.loads(line) | {"complexity_level": 3} for line in reports.read_text(encoding="utf-8").splitlines()]
    reports.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for line in COMMANDS.strip().splitlines():
        assert main(["research", *shlex.split(line)]) == 0, line
    for name in RESULTS.split():
        assert (project / "results" / name).is_file(), name
    for name in ("query_scores.json", "query_scores.csv", "selected_queries.jsonl"):
        assert (project / "query_analysis" / name).is_file()
    summary = json.loads((project / "results/poet/model_name/model_name_poet_summary.json").read_text())
    assert (summary["n_total"], summary["n_scored"]) == (2, 2)


@pytest.mark.slow
def test_run_benchmark_with_its_variables(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_QUERY_SELECTION=true bash run_benchmark.sh, with TARGET_MODELS as the script has them."""
    (project / "data/prompt_data/query.jsonl").unlink()
    for name, value in {
        "TARGET_MODELS": '("model_name")',
        "ENABLE_QUERY_SELECTION": "true",
        "N_TOTAL_PROCESS": "10",
        "LIMIT": "--limit 1",
        "SKIP_CLEANING": "--skip_cleaning",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["research", "run", *NETWORK.split()]) == 0
    for name in RESULTS.split():
        assert (project / "results" / name).is_file(), name
    assert len((project / "results/race/model_name/raw_results.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("command", ["", *HELPED])
def test_help_fits_a_narrow_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["research", *command.split(), "--help"])
    out = capsys.readouterr().out
    text = [line for line in out.splitlines() if not line.lstrip().startswith(("-", "("))]  # argparse wraps no options
    assert [line for line in text if len(line) > 80] == []
    assert "seed" not in out
