"""Sessions that record cassettes at an endpoint on loopback."""

from __future__ import annotations

import pytest
import yaml
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

from pytest_agentbench.config.kinds import find_config_files


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with drawing_endpoint() as endpoint:
        yield endpoint


CUT_SHORT = """
import asyncio
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    asked = asyncio.Event()

    async def agent(case, context):
        if case.case_id == "a":
            await asked.wait()
            return "Rome"
        first = await context.client.complete([{"role": "user", "content": "first"}])
        asked.set()
        second = await context.client.complete([{"role": "user", "content": "second"}])
        return f"{first.content} {second.content}"

    return agent
"""


@pytest.mark.slow
def test_a_recording_that_was_interrupted_goes_on_where_it_was(bench, endpoint):
    """What the session itself cut off is no answer of anybody."""
    endpoint.choose = lambda message, nth: "hang" if message == "second" and nth == 0 else "ok"
    model(bench, endpoint)
    bench.agent(CUT_SHORT)
    bench.case("a")
    bench.case("b")
    assert bench.run("--model=gpt", AUTO, "-x").outcomes["a[gpt]"] == "failed"
    [cassette] = cassettes(bench).values()
    [exchange] = yaml.safe_load(cassette.read_text())["exchanges"]
    assert exchange["reply"]["content"] == "Paris, draw 1"
    endpoint.requests.clear()
    assert bench.run("--model=gpt", AUTO).outcomes["b[gpt]"] == "passed"
    assert [request.message for request in endpoint.requests] == ["second"]


@pytest.mark.slow
def test_record_asks_anew_and_keeps_nothing_else(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    for number in (1, 2):
        finished = bench.run("--model=gpt", RECORD)
        assert len(endpoint.requests) == number
        assert not finished.report["totals"]["reused"]
        [cassette] = cassettes(bench).values()
        [exchange] = yaml.safe_load(cassette.read_text())["exchanges"]
        assert exchange["reply"]["content"] == f"Paris, draw {number}"
    assert bench.run("--model=gpt").report["totals"]["reused"] == 1  # what was recorded is paid for
    assert len(endpoint.requests) == 2


@pytest.mark.slow
def test_a_model_of_models_yaml_has_its_own_mode(bench, endpoint):
    model(bench, endpoint, cassettes="off")
    bench.case("a", rubric={"criteria": [{"name": "short"}]})
    judged = profile(bench, **JUDGED)
    bench.run("--model=gpt", judged, AUTO)
    [cassette] = cassettes(bench).values()
    assert {each["asked"] for each in yaml.safe_load(cassette.read_text())["exchanges"]} == {"judge"}
    assert len(endpoint.requests) == 4
    finished = bench.run("--model=gpt", judged, REPLAY, "--agentbench-no-reuse")
    assert len(endpoint.requests) == 5  # another answer: its verdict is not on the cassette
    assert finished.outcomes == {"a[gpt]": "error"}
    model(bench, endpoint, cassettes="record")
    bench.run("--model=gpt", judged)
    kept = yaml.safe_load(cassette.read_text())["exchanges"]
    assert [each["asked"] for each in kept] == ["judge", "judge", "judge", "gpt"]  # the judge is not recorded anew
    bench.models({"model_id": "gpt", "cassettes": "sometimes"})
    assert "cassettes: found 'sometimes', expected 'off', 'record', 'replay' or 'auto'" in bench.run("--model=gpt").text


@pytest.mark.slow
def test_only_the_final_reply_of_a_retried_request_is_kept(bench, endpoint, monkeypatch):
    endpoint.choose = in_order("429", "500")
    model(bench, endpoint)
    bench.case("a")
    bench.profile("quick", runner_defaults={"retries": 3})
    recorded = bench.run("--model=gpt", "--agentbench-run-profile=quick", RECORD)
    assert [request.fault for request in endpoint.requests] == ["429", "500", "ok"]
    [cassette] = cassettes(bench).values()
    [exchange] = yaml.safe_load(cassette.read_text())["exchanges"]
    assert exchange["reply"]["attempts"] == 3
    gone(bench, endpoint, monkeypatch)
    replayed = bench.run("--model=gpt", "--agentbench-run-profile=quick", REPLAY)
    assert facts(replayed) == facts(recorded)
    assert replayed.runs["a[gpt]"]["duration_seconds"] > 0.5  # the back-off of the recording


@pytest.mark.slow
def test_an_outage_is_not_recorded_and_takes_no_cassette_away(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.run("--model=gpt", RECORD)
    [cassette] = cassettes(bench).values()
    before = cassette.read_bytes()
    endpoint.choose = lambda message, nth: "401"
    assert bench.run("--model=gpt", RECORD).outcomes == {"a[gpt]": "error"}
    assert cassette.read_bytes() == before
    bench.case("b")
    bench.run("--model=gpt", AUTO, "-k", "b")
    assert list(cassettes(bench).values()) == [cassette]


@pytest.mark.slow
def test_a_case_and_a_test_by_hand_are_one_recording(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.write(
        "test_hand.py",
        """
import pytest

@pytest.mark.agentbench("a")
def test_a(agentbench_run):
    assert "Paris" in agentbench_run.output
""",
    )
    recorded = bench.run("--model=gpt", RECORD)
    assert set(recorded.outcomes.values()) == {"passed"}
    assert len(endpoint.requests) == 1
    replayed = bench.run("--model=gpt", REPLAY)
    assert facts(replayed) == facts(recorded)


@pytest.mark.slow
def test_secrets_and_tags_stay_out_of_cassettes(bench, endpoint, monkeypatch):
    def leaky(body):
        return {"role": "assistant", "content": f"Paris. Your key is {secret}"}

    secret = "sk-a-key-that-nobody-may-see-0123456789"
    endpoint.answer = leaky
    model(bench, endpoint, parameters={"user": "me@example.org", "metadata": {"run": "7"}, "temperature": 0})
    bench.case("a", input={"messages": [{"role": "user", "content": f"My key is {secret}. The capital?"}]})
    recorded = bench.run("--model=gpt", RECORD)
    [cassette] = cassettes(bench).values()
    text = cassette.read_text()
    assert secret not in text
    assert "example.org" not in text
    assert "Your key is [redacted]" in text
    assert yaml.safe_load(text)["exchanges"][0]["request"].keys() == {"model", "messages", "temperature"}
    gone(bench, endpoint, monkeypatch)
    assert facts(bench.run("--model=gpt", REPLAY)) == facts(recorded)


def test_a_place_that_takes_no_file_is_an_error_before_anything_is_paid(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.write("cases/a/cassettes", "a file in place of the folder")
    finished = bench.run("--model=gpt", RECORD)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert "gpt-r1.yaml: the cassette cannot be written: File exists" in finished.text
    assert not endpoint.requests


def test_a_paid_run_is_stored_where_its_cassette_cannot_be(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    (bench.path / "cases/a/cassettes/gpt-r1.yaml").mkdir(parents=True)
    finished = bench.run("--model=gpt", RECORD)
    assert finished.outcomes == {"a[gpt]": "error"}
    assert "gpt-r1.yaml: the cassette cannot be written: Is a directory" in finished.text
    assert bench.run("--model=gpt").report["totals"]["reused"] == 1
    assert len(endpoint.requests) == 1


@pytest.mark.slow
def test_workers_record_as_one_process_does(bench, endpoint, monkeypatch):
    model(bench, endpoint)
    bench.questions(6)
    hand = """
import pytest

@pytest.mark.agentbench("many.q0")
@pytest.mark.parametrize("again", range(3))
def test_again(agentbench_run, again):
    assert agentbench_run.output.startswith("Paris")
"""
    bench.write("test_hand.py", hand)
    options = ("--model=gpt", "--agentbench-metric=contains_answer")
    recorded = bench.spawn(*options, RECORD, "-n2")
    assert set(recorded.outcomes.values()) == {"passed"}, recorded.text
    assert len(recorded.runs) == 9
    assert len(endpoint.requests) == 6  # the tests by hand are of one run
    gone(bench, endpoint, monkeypatch)
    replayed = bench.run(*options, REPLAY)
    assert facts(replayed) == facts(recorded)


# -- what belongs to a run


@pytest.mark.slow
def test_cassettes_are_no_cases_and_no_configuration(bench, endpoint):
    model(bench, endpoint)
    bench.case("a")
    bench.questions(3)
    bench.run("--model=gpt", RECORD)
    assert len(cassettes(bench)) == 4
    collected = bench.run("--model=gpt", "--collect-only", "-q", "--agentbench-cassettes=off")
    assert "4 tests collected" in collected.text
    assert not [path for path, _ in find_config_files(bench.path) if "cassettes" in path.parts]
    mine = bench.write("tests/cassettes/test_mine.py", "def test_mine(): pass\n")
    assert "1 test collected" in bench.run("--collect-only", "-q", str(mine.parent.parent)).text


def test_scripted_models_are_asked_as_ever(bench):
    bench.case("a")
    bench.write("cases/a/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})
    for mode in (RECORD, REPLAY):
        finished = bench.run("--model=demo", mode)
        assert (finished.outcomes, finished.runs["a[demo]"]["cassette"]) == ({"a[demo]": "passed"}, None)
    assert not cassettes(bench)


def test_a_wrong_mode_is_refused(bench):
    bench.case("a")
    assert (
        "found 'rewind', expected one of off, record, replay, auto" in bench.run("--agentbench-cassettes=rewind").text
    )
    bench.write("pytest.ini", "[pytest]\nagentbench_cassettes = replay\n")
    bench.models({"model_id": "gpt", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"})
    assert "there is no cassette" in bench.run("--model=gpt").text
