"""Domain and complexity level of reports that tell neither: only by a default that is named, and counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench
from support.research_project import ResearchProject, query, report

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.annotations import Annotations, DomainExpert, TaskDefaults

SHARED = Path(__file__).parents[4] / "shared" / "data" / "research"
GENERAL = TaskDefaults("general", 3)
MAP = {"Business": "finance"}
HEALTH = DomainExpert(avg_task_time_hours=4, avg_hourly_rate_usd=50)
KNOWN = Annotations(Path("annotation"), {"finance": HEALTH, "healthcare": HEALTH}, {}, {})


@pytest.mark.parametrize(
    ("defaults", "row", "placed"),
    [
        (TaskDefaults(), (None, None, None), (None, None, ())),
        (TaskDefaults(), (None, "Sport", 2), ("Sport", 2, ())),
        (TaskDefaults(), ("", "", 2), (None, 2, ())),
        (TaskDefaults(), ("art", "Business", 2), ("art", 2, ())),
        (GENERAL, (None, None, None), ("general", 3, ("domain", "complexity_level"))),
        (GENERAL, ("", None, 2), ("general", 2, ("domain",))),
        (GENERAL, (None, "Business", None), ("finance", 3, ("complexity_level",))),
        (GENERAL, (None, "finance", 2), ("finance", 2, ())),
        (GENERAL, (None, "medical", 2), ("medical", 2, ())),
        (GENERAL, (None, "Sport", 2), ("general", 2, ("domain",))),
        # A domain that is not annotated is a mistake: it is never replaced.
        (GENERAL, ("sport", None, 0), ("sport", 0, ())),
        (TaskDefaults("finance"), (None, None, None), ("finance", None, ("domain",))),
        (TaskDefaults(None, 4), (None, None, None), (None, 4, ("complexity_level",))),
    ],
)
def test_defaults_fill_only_missing_fields_of_a_row(
    defaults: TaskDefaults, row: tuple[Any, Any, Any], placed: tuple[Any, Any, Any]
) -> None:
    place = defaults.place(*row, MAP, KNOWN.knows_domain)
    assert (place.domain, place.level, place.defaults) == placed


@pytest.mark.parametrize(
    ("domain", "level", "compat", "chosen"),
    [
        (None, None, False, (None, None)),
        (None, None, True, ("general", 3)),
        ("finance", None, True, ("finance", 3)),
        (None, 4, True, ("general", 4)),
        ("finance", 4, False, ("finance", 4)),
    ],
)
def test_compat_has_the_defaults_of_the_original(
    domain: str | None, level: int | None, compat: bool, chosen: tuple[Any, Any]
) -> None:
    place = TaskDefaults.choose(domain, level, compat=compat)
    assert (place.domain, place.level) == chosen


def test_a_default_of_general_has_the_originals_expert_unless_it_is_annotated() -> None:
    expert = GENERAL.complete(KNOWN).domain("general")
    assert (expert.avg_task_time_hours, expert.avg_hourly_rate_usd) == (2.0, 100.0)
    annotated = Annotations(Path("annotation"), {"general": HEALTH}, {}, {})
    assert GENERAL.complete(annotated).domain("general") == HEALTH
    assert not TaskDefaults("finance", 3).complete(KNOWN).knows_domain("general")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResearchProject:
    """Two reports whose queries tell neither domain nor level."""
    for name in ("OPENAI_MODEL", "TARGET_MODELS", "LIMIT", "ONLY_ZH", "ONLY_EN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return forget(ResearchProject(tmp_path))


def forget(project: ResearchProject) -> ResearchProject:
    project.rows("query.jsonl", *({**query(n), "topic": None, "complexity_level": None} for n in (1, 2)))
    return project


def run(*options: str) -> int:
    files = ["--raw-data-dir", "raw", "--criteria-file", "criteria.jsonl", "--query-file", "query.jsonl"]
    files += ["--reference-file", "reference.jsonl", "--annotation-dir", "annotation"]
    return main(["research", "run", "--judge", "demo", "--script", "reports.demo.yaml", *files, *options])


def written(name: str) -> Any:
    return json.loads(Path(f"results/poet/gpt/gpt_poet_{name}.json").read_text(encoding="utf-8"))


def test_without_a_default_reports_have_no_score(project: ResearchProject, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--parts", "efficiency,poet") == 1
    assert "neither a domain nor a topic" in capsys.readouterr().err
    assert "defaults" not in written("report")


@pytest.mark.parametrize(
    ("options", "domain", "level"),
    [
        (["--default-domain", "finance", "--default-complexity", "4"], "finance", 4),
        (["--default_domain", "general", "--default_complexity", "3"], "general", 3),
        (["--compat"], "general", 3),
    ],
)
def test_reports_with_defaults_are_scored_and_counted(
    options: list[str], domain: str, level: int, project: ResearchProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.rows("raw/gpt.jsonl", report(1), report(2, complexity_level=1))
    assert run("--parts", "race,fact,efficiency,strategic,poet", *options) == 0
    assert "raw/gpt.jsonl: scored with defaults: complexity_level of 1, domain of 2 reports" in capsys.readouterr().err
    assert [(row["domain"], row["complexity_level"]) for row in written("summary")["results"]] == [
        (domain, level),
        (domain, 1),
    ]
    assert all(row["overall_poet_score"] for row in written("summary")["results"])
    assert written("report")["defaults"] == {"domain": 2, "complexity_level": 1}
    assert [row.get("defaults") for row in written("detailed")["results"]] == [
        ["domain", "complexity_level"],
        ["domain"],
    ]
    text = Path("results/poet/gpt/gpt_poet_report.txt").read_text(encoding="utf-8")
    assert "Defaults replace the domain of 2 and the complexity level of 1 reports" in text


def test_compat_interaction_keeps_the_originals_estimates(project: ResearchProject) -> None:
    (project.folder / "query.jsonl").unlink()
    experts = {name: {"avg_task_time_hours": 9, "avg_hourly_rate_usd": 300} for name in ("finance", "general")}
    project.json("annotation/domain_expert_data.json", experts)
    metrics: list[Any] = []
    for options in (["--compat"], ["--compat", "--default-domain", "finance"]):
        assert main(["research", "interaction", "--input-file", "raw/gpt.jsonl", *options, *ANNOTATED]) == 0
        rows = json.loads(Path("results/web_interaction/gpt/web_interaction_report.json").read_text())["results"]
        metrics.append(rows[0]["metrics"])
    assert [each["expert_hourly_rate_usd"] for each in metrics] == [100, 300]


ANNOTATED = ["--annotation-dir", "annotation"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize("annotation", ["poet_annotation_seed_format", "poet_annotation_code_format"])
def test_the_originals_example_is_scored_in_compat_mode(
    annotation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = SHARED / "poet_gpt/raw_data/gpt.jsonl"
    assert (
        main(["research", "efficiency", "--input-file", str(reports), "--annotation-dir", str(SHARED / annotation)])
        == 1
    )
    options = ["--compat", "--annotation-dir", str(SHARED / annotation)]
    assert main(["research", "efficiency", "--input-file", str(reports), *options]) == 0
    document = json.loads(Path("results/efficiency/gpt/efficiency_report.json").read_text())
    assert [(row["domain"], row["complexity_level"]) for row in document["results"]] == [("general", 3)] * 2
    assert all(row["efficiency_score"] > 0.9 for row in document["results"])


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"compat": True}, {"default_domain": "general", "default_complexity": 3}])
def test_items_with_defaults_are_scored_and_counted(
    fields: dict[str, Any], bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(bench.path)
    profile = {"schema_version": 1, "evaluation_profile_id": "scripted", "title": "Scripted", "judge_runs": []}
    profile["judges"] = [{"judge_id": "j", "type": "llm_probe", "model": "demo"}]
    bench.write("cases/evaluation_profiles/scripted.yaml", profile)
    project = forget(ResearchProject(bench.path / "cases"))
    refused = bench.run("--agentbench-evaluation-profile=scripted")
    refused.result.stdout.fnmatch_lines(["*found no domain or topic*or set default_domain"])
    project.reports(domain_map=None, **fields)
    finished = bench.run("--agentbench-evaluation-profile=scripted")
    assert finished.outcomes == {"drb.1[gpt]": "passed", "drb.2[gpt]": "passed"}
    finished.result.stdout.fnmatch_lines(
        ["research reports scored with defaults", "  gpt: complexity_level of 2 of 2, domain of 2 of 2"]
    )
    assert finished.report["models"][0]["research"] == {"reports": 2, "defaults": {"domain": 2, "complexity_level": 2}}
    assert all(run["metrics"]["poet"] for run in finished.report["runs"])
    (bench.path / "outputs" / "report.json").write_text(json.dumps(finished.report))
    assert main(["research", "poet", "--session", "outputs"]) == 0
    assert written("report")["defaults"] == {"domain": 2, "complexity_level": 2}
    shutil.rmtree(bench.path / "results")
