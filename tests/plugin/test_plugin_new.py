"""`agentbench new case` and `agentbench new judge`: what they write runs as it is."""

from __future__ import annotations

import re

import pytest
import yaml

from pytest_agentbench.cli import main


@pytest.fixture
def project(bench, monkeypatch):
    monkeypatch.chdir(bench.path)
    return bench


def test_a_new_case_passes_offline(project, capsys):
    assert main(["new", "case", "leap_year"]) == 0
    assert "pytest cases/leap_year --model demo" in capsys.readouterr().out
    assert project.run("--model", "demo", "--agentbench-strict").outcomes == {"leap_year[demo]": "passed"}


@pytest.mark.slow
def test_a_new_judge_scores_a_case_with_expectations(project):
    main(["new", "case", "leap_year"])
    main(["new", "judge", "strict"])
    assert main(["validate", "cases"]) == 0
    case, script = (project.path / "cases/leap_year" / name for name in ("test.yaml", "demo.yaml"))
    case.write_text(case.read_text() + "expectations: {hard_expectations: [{text: Gives a number.}]}\n")
    head, lines = script.read_text().split("# What its judge answers", 1)
    script.write_text(head + re.sub("(?m)^# ", "", lines.partition("\n")[2]))
    # In a process of its own: this one looked for the root before the judge's folder existed
    done = project.spawn("cases", "--model", "demo", "--agentbench-evaluation-profile", "strict")
    assert done.runs["leap_year[demo]"]["judge"]["overall"] == 9


def test_the_judge_is_the_first_real_model_unless_one_is_named(project):
    project.models({"model_id": "big", "requested_model": "big-1", "base_url": "http://127.0.0.1:9/v1"})
    main(["new", "judge", "first"])
    main(["new", "judge", "named", "--model", "other"])
    profiles = project.path / "cases/evaluation_profiles"
    judges = [yaml.safe_load((profiles / f"{name}.yaml").read_text())["judges"][0] for name in ("first", "named")]
    assert [judge["model"] for judge in judges] == ["big", "other"]


@pytest.mark.parametrize("kind", ["case", "judge"])
def test_nothing_is_overwritten_and_a_wrong_name_is_refused(project, capsys, kind):
    assert main(["new", kind, "one"]) == 0
    assert main(["new", kind, "one"]) == 1
    assert "exists already and is not overwritten" in capsys.readouterr().err
    assert main(["new", kind, "../One"]) == 1
    assert "found the name '../One', expected lower-case letters" in capsys.readouterr().err
    assert not (project.path / "One").exists()
