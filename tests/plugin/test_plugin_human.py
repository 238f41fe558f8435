"""What a session's report says of models' verdicts, and of people's labels of the same runs."""

from __future__ import annotations

import json

import jsonschema
import pytest

from pytest_agentbench.reports.reading import report_schema

SCHEMA = jsonschema.Draft202012Validator(report_schema())
JUDGED = "--agentbench-metric=llm_judgement>=1"
ROWS = (
    {"id": "fr", "question": "The capital of France?", "answer": "Paris"},
    {"id": "jp", "question": "The capital of Japan?", "answer": "Tokyo"},
    {"id": "pe", "question": "The capital of Peru?", "answer": "Lima"},
)


@pytest.fixture
def capitals(bench):
    bench.models({"model_id": "demo", "requested_model": "demo", "scripted": True, "judge": "demo"})
    bench.rows("cases/capitals.jsonl", *ROWS)
    script = {"schema_version": 1, "answers": {"fr": "Paris", "jp": "Kyoto", "pe": "Lima"}}
    bench.write("cases/capitals.demo.yaml", {**script, "judgements": {"fr": True, "jp": False, "pe": True}})
    return bench


def labels(bench, report, verdicts, **fields):
    """Lines of human.jsonl by ann, one for each run in order."""
    lines = []
    for row, verdict in zip(report["runs"], verdicts, strict=True):
        judges = {judged["by"]: judged["judge"] for judged in row["judged"]}
        label = {
            "schema_version": 1,
            "annotator": "ann",
            "nodeid": row["nodeid"],
            "run_id": row["run_id"],
            "rubric": row["judged"][0]["rubric"],
            "judges": judges,
            "verdict": verdict,
            "at": "2026-01-02T03:04:05Z",
        }
        lines.append({**label, **fields})
    bench.rows("human.jsonl", *lines)


def test_votes_are_compared_with_labels(capitals):
    report = capitals.run("--model=demo", JUDGED).report
    assert [row["judged"][0]["passed"] for row in report["runs"]] == [True, False, True]
    assert {(row["judged"][0]["by"], row["judged"][0]["score"]) for row in report["runs"]} == {("llm_judgement", None)}
    assert report["human"] is None
    labels(capitals, report, ["passed", "failed", "failed"])
    finished = capitals.run("--model=demo", JUDGED)
    SCHEMA.validate(finished.report)
    [judge] = finished.report["human"]["judges"]
    assert (judge["by"], judge["models"], judge["n"]) == ("llm_judgement", ["demo"], 3)
    assert judge["kappa"] == pytest.approx(0.4)
    assert judge["disagreements"] == ["cases/capitals.jsonl::capitals.pe[demo]"]
    assert "llm_judgement (demo): same verdict on 2 of 3 runs (66.7 %), kappa 0.40" in finished.text


@pytest.mark.slow
def test_other_votes_are_of_another_judge(capitals):
    labels(capitals, capitals.run("--model=demo", JUDGED).report, ["passed"] * 3)
    capitals.rows("cases/capitals.jsonl", *ROWS[:2], {**ROWS[2], "answer": "Lima, Peru"})
    human = capitals.run("--model=demo", JUDGED).report["human"]
    assert (human["counted"], human["left_out"]["other_rubric"]) == (2, 1)
    profile = {"schema_version": 1, "evaluation_profile_id": "thrice", "title": "Thrice"}
    metrics = [{"name": "llm_judgement", "threshold": 1.0, "args": {"repetitions": 3}}]
    capitals.write("cases/evaluation_profiles/thrice.yaml", {**profile, "metrics": metrics})
    human = capitals.run("--model=demo", "--agentbench-evaluation-profile=thrice").report["human"]
    assert (human["counted"], human["left_out"]["other_judge"], human["left_out"]["other_rubric"]) == (0, 2, 1)


def judged_project(bench, folder, profile_id, *, rubric="Names the river.", prompt="Be strict.\n"):
    """A case with expectations and a rubric, and a profile whose prompt lies in a file, all below `folder`."""
    referee = {"model_id": "referee", "requested_model": "referee", "scripted": True}
    bench.write(f"{folder}/cases/models.yaml", {"schema_version": 1, "models": [referee]})
    bench.case(
        "bern",
        folder=f"{folder}/cases",
        rubric={"criteria": [{"name": "river", "what_good_looks_like": rubric}]},
        deterministic_checks=None,
    )
    bench.write(f"{folder}/cases/bern/demo.yaml", {"schema_version": 1, "judge": {"overall": 8}})
    bench.write(f"{folder}/cases/evaluation_profiles/prompt.md", prompt)
    profile = {"schema_version": 1, "evaluation_profile_id": profile_id, "title": f"In {folder}"}
    profile["judges"] = [{"judge_id": "r", "type": "llm_probe", "model": "referee"}]
    profile["judge_runs"] = [{"judge_run_id": "r", "judge_id": "r"}]
    profile["judge_system_prompt_path"] = "prompt.md"
    bench.write(f"{folder}/cases/evaluation_profiles/{profile_id}.yaml", profile)


@pytest.mark.slow
def test_judge_and_rubric_are_the_same_in_another_folder_and_under_another_name(bench):
    bench.agent()
    projects = {"here": {}, "there": {}, "edited": {"rubric": "Names it."}, "prompted": {"prompt": "Be kind.\n"}}
    judged = {}
    for folder, changes in projects.items():
        judged_project(bench, folder, f"of_{folder}", **changes)
        finished = bench.run(f"--agentbench-evaluation-profile=of_{folder}", f"{folder}/cases")
        assert finished.report is not None, finished.text
        [[judged[folder]]] = [row["judged"] for row in finished.report["runs"]]
    assert judged["here"] == judged["there"]
    assert judged["here"]["rubric"] != judged["edited"]["rubric"]
    assert judged["here"]["judge"] == judged["edited"]["judge"] != judged["prompted"]["judge"]


@pytest.mark.slow
def test_a_session_without_a_judge_has_no_human_agreement(capitals):
    judged = capitals.run("--model=demo", JUDGED).report
    labels(capitals, judged, ["passed"] * 3)
    report = capitals.run("--model=demo").report
    assert not any("judged" in row or "run_id" in row for row in report["runs"])
    assert report["human"] is None


@pytest.mark.slow
def test_a_run_that_was_made_anew_needs_another_label(capitals):
    labels(capitals, capitals.run("--model=demo", JUDGED).report, ["passed"] * 3)
    human = capitals.run("--model=demo", JUDGED, "--agentbench-no-reuse").report["human"]
    assert (human["counted"], human["left_out"]["other_run"]) == (0, 3)


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"not json\n", b"[" * 100_000, b'{"annotator": "\x1b[2J"}\n'])
def test_broken_labels_cost_neither_report_nor_exit_status(capitals, content):
    capitals.rows("cases/capitals.jsonl", ROWS[0])
    (capitals.path / "human.jsonl").write_bytes(content)
    finished = capitals.run("--model=demo", JUDGED)
    assert (finished.exit, finished.report["human"]) == (0, None)
    [warning] = finished.report["session"]["warnings"]
    assert warning.startswith("people's labels are not counted: ")
    assert "human.jsonl:1:" in warning
    assert "\x1b" not in json.dumps(warning, ensure_ascii=False)
