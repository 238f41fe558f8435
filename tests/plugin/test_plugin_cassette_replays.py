"""Sessions that replay cassettes without their endpoint."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from support.bench import check
from support.cassette_sessions import (
    AUTO,
    JUDGED,
    RECORD,
    REPLAY,
    cassettes,
    drawing_endpoint,
    facts,
    gone,
    model,
    profile,
)
from support.fault_endpoint import in_order
from support.stored import find_stored

from pytest_agentbench.reports.reading import report_schema

SCHEMA = report_schema()


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with drawing_endpoint() as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    "how",
    [(), *(pytest.param((option,), marks=pytest.mark.slow) for option in ("--agentbench-concurrency=1", "-n2"))],
    ids=" ".join,
)
def test_a_replay_is_its_recording_without_keys_and_endpoint(bench, endpoint, monkeypatch, how):
    model(bench, endpoint)
    for case_id in ("a", "b"):
        bench.case(case_id, rubric={"criteria": [{"name": "short"}]})
    bench.rows("cases/rows.jsonl", {"id": "q", "question": "Which?", "answer": "Paris, draw 1"})
    metrics = [{"name": "llm_judgement", "args": {"repetitions": 3}}]
    options = ("--model=gpt", "--agentbench-repetitions=2", profile(bench, **JUDGED, metrics=metrics))
    recorded = bench.run(*options, RECORD)
    assert {row["cassette"] for row in recorded.runs.values()} == {"recorded"}
    assert sorted(cassettes(bench)) == [
        *(f"{case}/cassettes/gpt-r{n}.yaml" for case in ("a", "b") for n in (1, 2)),
        *(f"cassettes/rows.q/gpt-r{n}.yaml" for n in (1, 2)),
    ]
    requests = len(endpoint.requests)
    gone(bench, endpoint, monkeypatch)
    replayed = (bench.spawn if how == ("-n2",) else bench.run)(*options, REPLAY, *how)
    assert facts(replayed) == facts(recorded), replayed.text
    assert not endpoint.requests
    assert requests == 2 * 3 * (1 + 3)  # the run, then three judge iterations or votes
    jsonschema.validate(replayed.report, SCHEMA)
    assert {row["cassette"] for row in replayed.runs.values()} == {"replayed"}
    assert replayed.report["totals"]["spent_usd"] == {"run": 0.0, "judge": 0.0}
    assert replayed.report["totals"]["cost_usd"] == recorded.report["totals"]["cost_usd"]
    assert "6 replayed from cassettes" in replayed.text
    answers = {row["artifact"] for row in replayed.runs.values()}
    outputs = [json.loads((bench.path / "outputs" / path).read_text())["trace"][-1]["content"] for path in answers]
    assert len(set(outputs)) == 6  # repetitions are draws of their own


# -- what a replay refuses


@pytest.mark.slow
def test_an_unknown_request_shows_how_it_differs_from_the_nearest_one(bench, endpoint, monkeypatch):
    model(bench, endpoint)
    said = "One\nTwo\nThree of many"
    path = bench.case("a", input={"messages": [{"role": "user", "content": said}]})
    bench.run("--model=gpt", RECORD)
    path.write_text(path.read_text().replace("Three of many", "Three of few"))
    gone(bench, endpoint, monkeypatch)
    finished = bench.run("--model=gpt", REPLAY)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert "gpt-r1.yaml does not have this request; the nearest it has is exchange 1:" in finished.text
    diff = ["--- recorded (exchange 1)", "+++ asked now", "*   Two", "-*Three of many", "+*Three of few"]
    finished.result.stdout.fnmatch_lines(diff)
    assert "Record it with --agentbench-cassettes auto" in finished.text
    assert not endpoint.requests


@pytest.mark.slow
def test_an_unrecorded_request_is_an_error_in_replay(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    finished = bench.run("--model=gpt", REPLAY)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert f"there is no cassette {bench.path / 'cases/a/cassettes/gpt-r1.yaml'}" in finished.text
    bench.run("--model=gpt", RECORD)
    finished = bench.run("--model=gpt", "--agentbench-repetitions=2", REPLAY)
    assert finished.outcomes == {"a[gpt]": "passed", "a[gpt-r2]": "error"}


STUBBORN = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    async def agent(case, context):
        try:
            reply = await context.client.complete([{"role": "user", "content": case.messages[-1].content}])
        except Exception:
            return "Paris, I suppose"
        context.trace.add_usage(reply.usage)
        return reply.content
    return agent
"""


def test_an_agent_that_swallows_it_does_not_hide_a_missing_answer(bench, endpoint):
    model(bench, endpoint)
    bench.agent(STUBBORN)
    bench.case("a")
    finished = bench.run("--model=gpt", REPLAY)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert "there is no cassette" in finished.text
    assert not find_stored(bench.path / "outputs", "run_1.json")


@pytest.mark.slow
def test_a_missing_judge_is_an_error_and_no_verdict_of_the_others(bench, endpoint):
    model(bench, endpoint)
    path = bench.case("a", rubric={"criteria": [{"name": "short"}]})
    judged = profile(bench, **JUDGED)
    bench.run("--model=gpt", judged, RECORD)
    [cassette] = cassettes(bench).values()
    document = yaml.safe_load(cassette.read_text())
    assert [each["asked"] for each in document["exchanges"]] == ["gpt", "judge", "judge", "judge"]
    del document["exchanges"][-1]
    cassette.write_text(yaml.safe_dump(document))
    finished = bench.run("--model=gpt", judged, REPLAY)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert "has this request 2 times, and it is asked again" in finished.text
    path.write_text(path.read_text().replace("short", "brief"))
    finished = bench.run("--model=gpt", judged, REPLAY)
    finished.result.stdout.fnmatch_lines(["--- recorded (exchange 2)", "-*- Criterion: short", "+*- Criterion: brief"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            lambda text: text.removesuffix("complete: true\n"),
            "gpt-r1.yaml:*found no 'complete: true' at the end: *cut off",
        ),
        (lambda text: "", "gpt-r1.yaml:1:1: found no cassette, expected a top-level mapping"),
        (lambda text: "hello", "gpt-r1.yaml:1:1: found no cassette, expected a top-level mapping"),
        (lambda text: text.replace("role: user", "role: [user"), "gpt-r1.yaml:*not valid YAML"),
        (
            lambda text: text.replace("  seconds:", "  second:"),
            "gpt-r1.yaml:*exchanges[[]0[]].second: unknown field*seconds",
        ),
        (lambda text: text.replace("schema_version: 1", "schema_version: 9"), "gpt-r1.yaml:1:*found 9, expected*1"),
    ],
)
def test_a_broken_cassette_is_an_error_with_its_line(bench, endpoint, broken, said):
    model(bench, endpoint)
    bench.case("a")
    bench.run("--model=gpt", RECORD)
    [cassette] = cassettes(bench).values()
    cassette.write_text(broken(cassette.read_text()))
    finished = bench.run("--model=gpt", REPLAY)
    assert finished.outcomes == {"a[gpt]": "error"}
    finished.result.stdout.fnmatch_lines([f"*{said}*"])
    assert bench.run("--model=gpt", RECORD).outcomes == {"a[gpt]": "passed"}  # anew, whatever lies there
    assert bench.run("--model=gpt", REPLAY).outcomes == {"a[gpt]": "passed"}


@pytest.mark.slow
def test_a_missing_key_is_no_refusal_of_a_replay(bench, endpoint, monkeypatch):
    model(bench, endpoint)
    bench.case("a")
    bench.run("--model=gpt", RECORD)
    gone(bench, endpoint, monkeypatch)
    for mode in (RECORD, AUTO):
        finished = bench.run("--model=gpt", mode)
        assert finished.exit == pytest.ExitCode.USAGE_ERROR
        assert "model 'gpt' needs a key" in finished.text
    assert bench.run("--model=gpt", REPLAY).outcomes == {"a[gpt]": "passed"}


# -- recording


@pytest.mark.slow
def test_auto_replays_what_is_there_and_records_the_rest(bench, endpoint):
    model(bench, endpoint)
    path = bench.case("a", rubric={"criteria": [{"name": "short"}]})
    judged = profile(bench, **JUDGED)

    def paid(*options):
        endpoint.requests.clear()
        finished = bench.run("--model=gpt", judged, AUTO, *options)
        assert set(finished.outcomes.values()) == {"passed"}, finished.text
        return len(endpoint.requests), [row["cassette"] for row in finished.runs.values()]

    assert paid() == (4, ["recorded"])
    assert paid() == (0, ["replayed"])
    assert paid("--agentbench-repetitions=2") == (4, ["replayed", "recorded"])
    path.write_text(path.read_text().replace("short", "brief"))
    assert paid() == (3, ["recorded"])  # the run comes from the cassette
    path.write_text(path.read_text().replace("brief", "short"))
    assert paid() == (0, ["replayed"])  # nothing that was paid for is gone
    path.write_text(path.read_text().replace("France", "France, please"))
    assert paid()[0] == 4


@pytest.mark.full
def test_a_run_that_timed_out_times_out_again(bench, endpoint, monkeypatch):
    endpoint.choose = in_order("hang")
    model(bench, endpoint)
    bench.profile("short", run_timeout_seconds=0.2)
    bench.case("a", deterministic_checks=[check("late", kind="status_is", status="timed_out")])
    bench.case("b")
    options = ("--model=gpt", "--agentbench-run-profile=short")
    recorded = bench.run(*options, RECORD)
    assert recorded.outcomes == {"a[gpt]": "passed", "b[gpt]": "failed"}
    assert recorded.runs["b[gpt]"]["status"] == "timed_out"
    gone(bench, endpoint, monkeypatch)
    profile_text = (bench.path / "cases/run_profiles/short.yaml").read_text()
    bench.write("cases/run_profiles/short.yaml", profile_text.replace("0.2", "3600"))
    replayed = bench.run(*options, REPLAY)  # at once
    assert facts(replayed) == facts(recorded)


# -- beside the store


@pytest.mark.slow
def test_replays_and_runs_are_not_mixed_up_in_the_store(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.run("--model=gpt", RECORD)
    replayed = bench.run("--model=gpt", REPLAY)
    assert (replayed.runs["a[gpt]"]["reused"], replayed.runs["a[gpt]"]["cassette"]) == (False, "replayed")
    again = bench.run("--model=gpt", REPLAY)
    assert (again.runs["a[gpt]"]["reused"], again.runs["a[gpt]"]["cassette"]) == (True, "replayed")
    plain = bench.run("--model=gpt")
    assert (plain.runs["a[gpt]"]["reused"], plain.runs["a[gpt]"]["cassette"]) == (True, "recorded")
    [cassette] = cassettes(bench).values()
    cassette.write_text(cassette.read_text().replace("Paris, draw 1", "London"))
    edited = bench.run("--model=gpt", REPLAY)
    assert edited.outcomes == {"a[gpt]": "failed"}
    assert len(endpoint.requests) == 1


@pytest.mark.slow
def test_a_replay_spends_nothing(bench, endpoint):
    model(bench, endpoint)
    for case_id in ("a", "b", "c"):
        bench.case(case_id)
    bench.run("--model=gpt", RECORD)
    finished = bench.run("--model=gpt", REPLAY, "--agentbench-max-cost=0.01", "--agentbench-concurrency=1")
    assert set(finished.outcomes.values()) == {"passed"}
    assert finished.report["totals"]["cost_usd"]["run"] == 6.0
    assert finished.report["totals"]["spent_usd"]["run"] == 0.0


@pytest.mark.slow
def test_a_dry_run_expects_no_cost_of_a_replay(bench, endpoint):
    model(bench, endpoint)
    path = bench.case("a", rubric={"criteria": [{"name": "short"}]})
    judged = profile(bench, **JUDGED)
    bench.run("--model=gpt", judged, RECORD)
    path.write_text(path.read_text().replace("short", "brief"))
    foreseen = [bench.run("--model=gpt", judged, mode, "--agentbench-dry-run").text for mode in (RECORD, REPLAY)]
    assert ["$6.00" in text for text in foreseen] == [True, False], foreseen
    assert "$0.0000" in foreseen[1]


@pytest.mark.slow
def test_a_replay_imports_no_client(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.run("--model=gpt", RECORD)
    hook = "import sys\ndef pytest_unconfigure(config):\n    print('openai imported:', 'openai' in sys.modules)\n"
    bench.write("conftest.py", hook)
    finished = bench.spawn("--model=gpt", REPLAY, "-s")
    assert "openai imported: False" in finished.text
