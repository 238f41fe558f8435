from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime

import pytest
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.packs.mcp_bench.ablation import compute_cv_over_judges, compute_cv_over_shuffles
from pytest_agentbench.packs.mcp_bench.judge_prompts import shuffled
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS
from pytest_agentbench.packs.mcp_bench.wording import read_judge_wording
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.store.artifacts import Store

TASKS = {"maps_001": "Which trip is longer?", "maps_002": "How far is it to the sea?"}
JUDGES = ("one", "two", "three")
PLAIN = {
    "maps_001": {"one": 4.0, "two": 6.0, "three": 8.0},
    "maps_002": {"one": 5.0, "two": 5.0, "three": 5.0},
}
SHUFFLED = {
    "maps_001": {"one": (4, 6, 4, 6, 5), "two": (6,) * 5, "three": (7,) * 5},
    "maps_002": {"one": (5,) * 5, "two": (5,) * 5, "three": (4, 4, 4, 4, 9)},
}
"""Task completion by task and judge, of the five iterations in order."""


def order_of(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^### (.+)$", text.rpartition("\n# Rubric")[2].partition("\n# From")[0], re.MULTILINE))


def orders(case_id: str) -> dict[tuple[str, ...], int]:
    """Return which iteration has which order of the rubric; 0 is the plain one."""
    rubric = read_judge_wording("en").rubric
    found = {}
    for number in range(6):
        axes = shuffled(rubric, "axes" if number else "none", case_id, number)
        found[tuple(scale.title for axis in axes for scale in axis.scales)] = number
    assert len(found) == 6, "another id for the case: two of its orders are the same"
    return found


ORDERS = {case_id: orders(case_id) for case_id in TASKS}


def score_of(body: dict) -> float:
    prompt = body["messages"][1]["content"]
    case_id = next(case_id for case_id, text in TASKS.items() if text in prompt)
    number = ORDERS[case_id][order_of(prompt)]
    return SHUFFLED[case_id][body["model"]][number - 1] if number else PLAIN[case_id][body["model"]]


def reply(score: object, **scores: object) -> dict:
    reasons = [f"{name.replace('_and_', '_')}_reasoning" for name in TOOL_USE_DIMENSIONS]
    content = {**dict.fromkeys(reasons, "so"), **dict.fromkeys(TOOL_USE_DIMENSIONS, score), **scores}
    return {"role": "assistant", "content": json.dumps(content)}


def judged(body: dict) -> dict:
    """Return a reply whose task completion is the mean of these two scores; other dimensions do not count."""
    completion = score_of(body)
    return reply(1, task_fulfillment=completion + 1, grounding=completion - 1)


def make_run(case_id: str, number: int = 1, status: str = "success", model: str = "agent") -> RunArtifact:
    return RunArtifact(
        run_id=f"{case_id}{number}{model}",
        case_id=case_id,
        runner_type="mcp_planner",
        model={"model_id": model},
        repetition=number,
        fingerprint=f"{len(case_id)}{number}".rjust(64, "0"),
        status=status,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_seconds=1.0,
        trace=(FinalOutputEvent(sequence=0, at=0.0, content="The first one."),),
        error=None if status == "success" else {"code": "x", "message": "gave up"},
    )


@pytest.fixture
def endpoint():
    with FaultEndpoint(answer=judged) as served:
        yield served


@pytest.fixture
def ablation(tmp_path, monkeypatch, capsys, endpoint):
    """Return a function that runs the command on two tasks with a run each. It returns status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "sk-of-the-judges")
    tasks = [{"task_id": case_id, "fuzzy_description": text} for case_id, text in TASKS.items()]
    groups = [{"server_name": "Maps", "servers": ["Maps"], "tasks": tasks}]
    (tmp_path / "tasks.json").write_text(json.dumps({"server_tasks": groups}))
    prices = "prices: {input_per_1m: 1000, output_per_1m: 1000}"
    entries = (
        f'  - {{model_id: {name}, base_url: "{endpoint.base_url}", api_key_env: JUDGE_KEY, {prices}}}\n'
        for name in JUDGES
    )
    (tmp_path / "models.yaml").write_text("schema_version: 1\nmodels:\n" + "".join(entries))
    for case_id in TASKS:
        store(make_run(case_id))

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(["mcp", "ablation", *argv])
        return status, *capsys.readouterr()

    return run


def store(run: RunArtifact) -> None:
    from pathlib import Path

    profile = RunProfile(schema_version=1, run_profile_id="p", title="P")
    model_store = Store(Path("outputs")).of_model(None, profile, EvaluationProfile.default(), run.model["model_id"])
    model_store.write_run(run, {})


BY_ALL = tuple(word for name in JUDGES for word in ("--judge", name))


def test_the_figures_by_hand(ablation):
    """Plain: 4, 6, 8 vary by sqrt(8/3) / 6, and 5, 5, 5 not at all. Shuffled: the means are 5, 6, 7 and 5, 5, 5.

    Over shuffles: `one` varies by sqrt(0.8) / 5 on the first task, `three` by 2 / 5 on the second.
    """
    status, out, err = ablation(*BY_ALL, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    plain, mixed = found["pipelines"]["plain"], found["pipelines"]["shuffled"]
    assert plain["cv_over_judges_percent"] == pytest.approx(100 * math.sqrt(8 / 3) / 6 / 2)
    assert mixed["cv_over_judges_percent"] == pytest.approx(100 * math.sqrt(2 / 3) / 6 / 2)
    assert plain["cv_over_shuffles_percent"] is None
    by_judge = {"one": 100 * math.sqrt(0.8) / 5 / 2, "two": 0, "three": 100 * 2 / 5 / 2}
    assert mixed["cv_over_shuffles_percent_by_judge"] == pytest.approx(by_judge)
    assert mixed["cv_over_shuffles_percent"] == pytest.approx(sum(by_judge.values()) / 3)
    assert (found["runs"], found["left_out"], found["judges"]) == (2, 0, list(JUDGES))
    assert found["scores"][0]["task_completion"]["shuffled"]["one"] == list(SHUFFLED["maps_001"]["one"])


def test_the_table(ablation, tmp_path):
    ratings = [("ann", "plain", 1), ("bob", "plain", 2), ("ann", "shuffled", 2), ("bob", "shuffled", 2)]
    lines = [
        {"annotator": who, "case_id": "maps_001", "pipeline": pipeline, "agreement": agreement}
        for who, pipeline, agreement in ratings
    ]
    (tmp_path / "human.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, out, _ = ablation(*BY_ALL, "--human", "human.jsonl")
    assert status == 0
    rows = [re.split(r" {2,}", line) for line in out.splitlines()]
    assert rows[0] == ["2 runs, judged by one, two, three"]
    assert rows[2:5] == [
        ["pipeline", "CV over judges", "CV over shuffles", "human agreement"],
        ["plain: one order, one reply", "13.6 %", "-", "1.50 of 2 (2 ratings)"],
        ["shuffled: 5 shuffled orders, mean", "6.8 %", "9.6 %", "2.00 of 2 (2 ratings)"],
    ]
    assert "CV over the shuffles of three: 20.0 %" in out
    assert re.search(r"^36 verdicts asked for, 0 stored before; cost \$\d+\.\d{4}$", out, re.MULTILINE)


def test_a_second_call_costs_nothing_and_has_the_same_scores(ablation, endpoint):
    first = json.loads(ablation(*BY_ALL, "--json")[1])
    assert len(endpoint.requests) == 2 * 3 * 6
    assert first["cost_usd"] > 0
    second = json.loads(ablation(*BY_ALL, "--json")[1])
    assert len(endpoint.requests) == 36
    assert (second["cost_usd"], second["verdicts"]) == (0, {"asked": 0, "kept": 36})
    assert second["pipelines"] == first["pipelines"]
    assert second["scores"] == first["scores"]


def test_a_dry_run_counts_missing_verdicts(ablation, endpoint):
    assert ablation(*BY_ALL, "--dry-run")[:2] == (
        0,
        "2 runs x 3 judges x 6 verdicts: 36 requests to make, 0 verdicts are stored\n",
    )
    assert endpoint.requests == []
    ablation("--judge", "one", "--runs", "1")
    assert "30 requests to make, 6 verdicts are stored" in ablation(*BY_ALL, "--dry-run")[1]


def test_other_request_options_are_another_verdict(ablation, endpoint, tmp_path):
    (tmp_path / "evaluation_profiles").mkdir()
    text = "judges: [{judge_id: a, type: llm_probe, model: one, temperature: 0.5}]"
    (tmp_path / "evaluation_profiles" / "warm.yaml").write_text(
        f"schema_version: 1\nevaluation_profile_id: warm\ntitle: Warm\n{text}\n"
    )
    ablation("--judge", "one", "--runs", "1")
    status, out, _ = ablation("--profile", "warm", "--runs", "1", "--json")
    assert (status, json.loads(out)["verdicts"]) == (0, {"asked": 6, "kept": 0})
    assert [request.body.get("temperature") for request in endpoint.requests] == [None] * 6 + [0.5] * 6


def test_one_judge_has_nobody_to_differ_from(ablation):
    found = json.loads(ablation("--judge", "one", "--json")[1])
    assert found["pipelines"]["shuffled"]["cv_over_judges_percent"] is None
    assert "-" in ablation("--judge", "one")[1]


def test_runs_are_of_different_tasks_first(ablation):
    for number in (2, 3):
        store(make_run("maps_001", number))
    found = json.loads(ablation("--judge", "one", "--runs", "3", "--json")[1])
    assert [(row["case_id"], row["repetition"]) for row in found["scores"]] == [
        ("maps_001", 1),
        ("maps_002", 1),
        ("maps_001", 2),
    ]


def test_runs_that_failed_and_other_cases_are_left_alone(ablation, endpoint):
    store(make_run("maps_001", 2, status="failed"))
    store(make_run("other"))
    assert json.loads(ablation("--judge", "one", "--json")[1])["runs"] == 2


@pytest.mark.slow
def test_a_run_that_a_judge_cannot_score_is_left_out_and_said(ablation, endpoint):
    endpoint.answer = lambda body: reply("7") if body["model"] == "two" and score_of(body) == 5 else judged(body)
    status, out, err = ablation(*BY_ALL)
    assert status == 1
    assert "1 run (1 more could not be scored)" in out
    assert "maps_002: two, plain: no verdict in 3 replies" in err
    assert "27.2 %" in out  # of the other one alone


@pytest.mark.slow
def test_a_judge_that_answers_some_of_its_shuffles_is_averaged_over_these(ablation, endpoint):
    """Of 4, 6, 4, 6, 5 the sixes are no answers: 4, 4 and 5 have mean 13/3."""

    def some(body):
        mute = body["model"] == "one" and score_of(body) == 6
        return reply(11) if mute else judged(body)

    endpoint.answer = some
    status, out, err = ablation(*BY_ALL, "--json")
    [first, _] = json.loads(out)["scores"]
    assert (status, first["task_completion"]["shuffled"]["one"]) == (0, [4, 4, 5])
    assert err.count("maps_001: one, shuffled: no verdict in 3 replies") == 2
    means = (13 / 3, 6, 7)
    sigma = math.sqrt(sum((mean - sum(means) / 3) ** 2 for mean in means) / 3)
    expected = 100 * sigma / (sum(means) / 3) / 2
    assert json.loads(out)["pipelines"]["shuffled"]["cv_over_judges_percent"] == pytest.approx(expected)


def test_ratings_that_cannot_be_read_are_said_before_anything_is_paid(ablation, tmp_path, endpoint):
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.jsonl").write_text("\n")
    for name in ("missing.jsonl", "binary.jsonl", "empty.jsonl", "."):
        status, _, err = ablation(*BY_ALL, "--human", name)
        assert status == 1, name
        assert name in err
    assert endpoint.requests == []


def test_a_judge_without_a_key_is_asked_nothing(ablation, monkeypatch, endpoint):
    monkeypatch.delenv("JUDGE_KEY")
    status, _, err = ablation(*BY_ALL)
    assert status == 1
    assert "JUDGE_KEY is not set" in err
    assert endpoint.requests == []


def test_a_missing_judge_task_or_store_is_an_error(ablation, tmp_path):
    assert "found no judge; name models with --judge" in ablation()[2]
    (tmp_path / "empty").mkdir()
    assert "found no MCP task" in ablation("empty", "--judge", "one")[2]
    assert "found neither store.sqlite nor a folder runs" in ablation("--output", "nowhere", "--judge", "one")[2]


def test_problems_of_the_ratings_have_their_line(ablation, tmp_path, endpoint):
    good = {"annotator": "ann", "case_id": "maps_001", "pipeline": "plain", "agreement": 2}
    lines = [good, good, {**good, "agreement": 3}, {**good, "pipeline": "mixed"}, {"annotator": "x"}, [1]]
    lines += [{**good, "agreement": True}, {**good, "agreement": "2"}]
    (tmp_path / "human.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n")
    status, _, err = ablation(*BY_ALL, "--human", "human.jsonl")
    assert status == 1
    assert endpoint.requests == []
    for expected in (
        "human.jsonl:2:1: found a second rating of ann for maps_001 (plain), the first is in line 1",
        "human.jsonl:3:1: agreement: found 3; input should be less than or equal to 2",
        'human.jsonl:4:1: pipeline: found "mixed"',
        "human.jsonl:5:1: case_id: found nothing",
        "human.jsonl:6:1: found [1]",
        "human.jsonl:7:1: agreement: found true",
        'human.jsonl:8:1: agreement: found "2"',
        "human.jsonl:9:",
    ):
        assert expected in err


def test_ratings_of_other_tasks_do_not_count(ablation, tmp_path):
    line = {"annotator": "ann", "case_id": "unknown", "pipeline": "plain", "agreement": 2}
    (tmp_path / "human.jsonl").write_text(json.dumps(line) + "\n")
    status, out, err = ablation("--judge", "one", "--human", "human.jsonl", "--json")
    assert (status, json.loads(out)["pipelines"]["plain"]["human_agreement"]) == (0, None)
    assert "human.jsonl: 1 rating of other tasks left out" in err


def test_judges_that_missed_a_run_do_not_count_for_it():
    runs = [{"a": [4], "b": [6]}, {"a": [4], "b": []}, {"a": [4, 6]}]
    assert compute_cv_over_judges(runs) == pytest.approx(20)
    assert compute_cv_over_judges(runs[1:]) is None
    assert compute_cv_over_shuffles(runs) == pytest.approx({"a": 20})
