"""How far judges can be trusted, in whole sessions: judges over HTTP, votes in report.json, lines and warnings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from support.bench import Bench, Finished
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.records.base import DIMENSIONS

SAID = {"steady": [8, 8, 8], "torn": [2, 7, 4], "good": [9, 10, 9]}
"""What the first judge says of each case, iteration by iteration; the second gives each a 6."""
JUDGE = "gpt-4o"


@pytest.fixture
def endpoint() -> Iterator[FaultEndpoint]:
    asked: Counter[str] = Counter()

    def answer(body: dict) -> dict:
        told = json.dumps(body["messages"])
        case_id = next(name for name in SAID if f"about {name}" in told)
        if "response_format" not in body:
            return {"role": "assistant", "content": f"Paris, says {body['model']} about {case_id}."}
        score = 6
        if body["model"] == JUDGE:
            score = SAID[case_id][asked[case_id] % 3]
            asked[case_id] += 1
        scored = {"score": score, "evidence": []}
        verdict = {"summary": "So.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
        return {"role": "assistant", "content": json.dumps({**verdict, "expectations": []})}

    with FaultEndpoint(answer=answer) as served:
        yield served


@pytest.fixture
def project(bench: Bench, endpoint: FaultEndpoint) -> Bench:
    """Three judged cases, a model of the first judge's maker, and two judges."""
    for case_id in SAID:
        messages = [{"role": "user", "content": f"Tell me about {case_id}."}]
        bench.case(case_id, input={"messages": messages}, deterministic_checks=None)
    names = {"small": "gpt-4o-mini", "judge": JUDGE, "other": "mistral-large"}
    at = {"base_url": endpoint.base_url, "api_key_env": "none"}
    bench.models(*({"model_id": name, "requested_model": model, **at} for name, model in names.items()))
    judges = [{"judge_id": name, "type": "llm_probe", "model": name} for name in ("judge", "other")]
    runs = [{"judge_run_id": name, "judge_id": name, "repetitions": n} for name, n in (("judge", 3), ("other", 1))]
    profile = {"evaluation_profile_id": "two", "title": "Two", "judges": judges, "judge_runs": runs}
    bench.write("cases/evaluation_profiles/two.yaml", {"schema_version": 1, **profile})
    return bench


def session(bench: Bench, *argv: str) -> Finished:
    return bench.run("--model=small", "--agentbench-evaluation-profile=two", *argv, "cases")


def test_votes_of_two_judges_become_their_agreement(project: Bench) -> None:
    finished = session(project)
    assert finished.report is not None, finished.text
    first, second = finished.report["judges"]
    assert (first["judge"], first["model"], first["profile"]) == ("judge", JUDGE, "two")
    assert (first["runs"], first["repeated"], first["votes"], first["failed"]) == (3, 3, 9, 0)
    within, votes = 38 / 3 + 2 / 3, [score for scores in SAID.values() for score in scores]
    middle = sum(votes) / 9
    assert first["alpha"] == pytest.approx(1 - (3 / 2 * within) / (9 / 8 * sum((v - middle) ** 2 for v in votes)))
    assert first["spread"] == pytest.approx((within / 6) ** 0.5)
    assert first["agreement"] == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert second["reasons"] == {"alpha": "no run has two votes of it"}
    assert first["between"]["judges"] == ["judge (gpt-4o)", "other (mistral-large)"]
    assert first["between"] == second["between"]
    assert "gpt-4o (judge): alpha 0." in finished.text
    assert "between 2 judges: alpha " in finished.text


def test_a_judge_needs_its_key_only_if_a_selected_case_is_judged(bench: Bench) -> None:
    bench.agent()
    bench.case("checked")
    bench.case("judged", rubric={"criteria": [{"name": "tone"}]})
    judges = [{"judge_id": "main", "type": "llm_probe", "model": "keyless"}]
    runs = [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}]
    profile = {"evaluation_profile_id": "one", "title": "One", "judges": judges, "judge_runs": runs}
    bench.write("cases/evaluation_profiles/one.yaml", {"schema_version": 1, **profile})
    bench.models({"model_id": "keyless", "base_url": "http://127.0.0.1:9", "api_key_env": "NO_SUCH_KEY"})
    assert bench.run("--agentbench-evaluation-profile=one", "-k", "checked").outcomes == {"checked[agent]": "passed"}
    finished = bench.run("--agentbench-evaluation-profile=one")
    assert "model 'keyless' needs a key: the environment variable NO_SUCH_KEY is not set" in finished.text
    assert finished.runs == {}


@pytest.mark.slow
def test_a_judge_of_the_same_maker_is_warned_of_also_where_all_is_reused_and_merged(project: Bench) -> None:
    warning = (
        "gpt-4o judges small of the same family (OpenAI): judges favour it; use a judge of another family, or several"
    )
    for part in (1, 2):
        shard = (f"--agentbench-shard={part}/2", f"--agentbench-json=part-{part}.json")
        finished = session(project, *shard)
        assert f"warning: {warning}" in finished.text
    assert session(project, "-q").report["session"]["warnings"] == [warning]
    parts = [str(project.path / f"part-{part}.json") for part in (1, 2)]
    joint = project.path / "joint.json"
    assert main(["merge", *parts, "-o", str(joint)]) == 0
    report = json.loads(joint.read_text())
    assert report["session"]["warnings"] == [warning]
    assert [(judge["runs"], judge["same_family"]) for judge in report["judges"]] == [(3, 3), (3, 0)]


@pytest.mark.slow
def test_a_session_without_scored_runs_does_not_import_scipy(bench: Bench) -> None:
    bench.agent(
        "import sys\nimport pytest\n\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return lambda case: 'Paris'\n\n"
        "def pytest_unconfigure(config):\n"
        "    print('LOADED', [name for name in ('numpy', 'scipy', 'krippendorff') if name in sys.modules])\n"
    )
    bench.questions(6)
    assert "LOADED []" in bench.spawn("--agentbench-repetitions=2", "-s", "cases").text


def test_enough_scored_cases_have_a_bootstrap_interval(bench: Bench) -> None:
    bench.agent(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return lambda c: 'x'\n"
    )
    for number in range(5):
        bench.case(f"c{number}", deterministic_checks=None)
        verdict = {"schema_version": 1, "judge": {"overall": 5 + number}}
        bench.write(f"cases/c{number}/demo.yaml", verdict)
    bench.models({"model_id": "referee", "requested_model": "referee", "scripted": True})
    judges = [{"judge_id": "r", "type": "llm_probe", "model": "referee"}]
    profile = {"evaluation_profile_id": "one", "title": "One", "judges": judges}
    profile["judge_runs"] = [{"judge_run_id": "r", "judge_id": "r"}]
    bench.write("cases/evaluation_profiles/one.yaml", {"schema_version": 1, **profile})
    finished = bench.run("--agentbench-evaluation-profile=one", "cases")
    assert finished.report is not None, finished.text
    [model] = finished.report["models"]
    low, high = model["score_bootstrap_ci95"]
    assert 5 <= low < model["mean_score"] == 7 < high <= 9
    assert model["score_se"] == pytest.approx((2.5 / 5) ** 0.5)
    [judge] = finished.report["judges"]
    assert judge["scripted"]
    assert finished.report["session"]["warnings"] == []
