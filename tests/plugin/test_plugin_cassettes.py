"""Sessions on cassettes: recorded at a real endpoint on loopback, replayed without it."""

from __future__ import annotations

import itertools
import json
import re
import shutil

import jsonschema
import pytest
import yaml
from support import fault_endpoint
from support.bench import check
from support.fault_endpoint import FaultEndpoint, in_order
from support.stored import find_stored

from pytest_agentbench.config.kinds import find_config_files
from pytest_agentbench.reports.reading import report_schema

SCHEMA = report_schema()
RECORD, REPLAY, AUTO = (f"--agentbench-cassettes={mode}" for mode in ("record", "replay", "auto"))
PRICES = {"input_per_1m": 100_000, "output_per_1m": 200_000}
SAME = ("outcome", "status", "final_score", "metrics", "judge", "usage", "cost_usd", "duration_seconds", "checks")
"""What a replay has in common with its recording, of each run."""


def draws(body):
    """An endpoint whose every answer is another one."""
    number = next(draws.numbers)
    if "response_format" in body:
        return {"role": "assistant", "content": verdict(body, number)}
    return {"role": "assistant", "content": f"Paris, draw {number}"}


def verdict(body, number):
    if "correct" in json.dumps(body["response_format"]):
        return json.dumps({"reason": f"Vote {number}.", "correct": number % 3 != 0})
    score = {"score": number % 5 + 5, "evidence": []}
    names = ("task", "process", "autonomy", "closeness", "efficiency", "spark")
    return json.dumps({"summary": f"Verdict {number}.", "dimensions": dict.fromkeys(names, score), "overall": score})


@pytest.fixture
def endpoint(bench, monkeypatch):
    draws.numbers = itertools.count(1)
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with FaultEndpoint(answer=draws) as endpoint:
        yield endpoint


def model(bench, endpoint, *others, **fields):
    entry = {"base_url": endpoint.base_url, "api_key_env": "BENCH_KEY", "prices": PRICES}
    bench.models({"model_id": "gpt", **entry, **fields}, {"model_id": "judge", **entry}, *others)


def profile(bench, **fields):
    fields = {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", **fields}
    bench.write("cases/evaluation_profiles/judged.yaml", fields)
    return "--agentbench-evaluation-profile=judged"


JUDGED = {
    "judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge"}],
    "judge_runs": [{"judge_run_id": "one", "judge_id": "j", "repetitions": 3}],
}


def facts(finished):
    return {name: {key: row[key] for key in SAME} for name, row in finished.runs.items()}


def cassettes(bench):
    return {
        str(path.relative_to(bench.path / "cases")): path
        for path in (bench.path / "cases").rglob("cassettes/**/*.yaml")
    }


def gone(bench, endpoint, monkeypatch):
    """The endpoint, its key and all results of before."""
    endpoint.requests.clear()
    monkeypatch.delenv("BENCH_KEY")
    shutil.rmtree(bench.path / "outputs")


@pytest.mark.parametrize(
    "how", [(), ("--agentbench-concurrency=1",), pytest.param(("-n2",), marks=pytest.mark.slow)], ids=" ".join
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


SEARCH = """
import pytest
from pytest_agentbench import SearchResult

asked = []

def pytest_agentbench_web_search():
    return search

async def search(query):
    with open("searches.txt", "a") as file:
        file.write(query + "\\n")
    asked.append(query)
    if query == "down":
        raise OSError("the search is down")
    return [SearchResult("Paris", "https://example.org", f"hit {len(asked)} of {query}")]
"""


def calls(*asked):
    return {
        "role": "assistant",
        "content": None,
        "refusal": None,  # as OpenAI has it: what says nothing is no part of the next request
        "annotations": [],
        "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(asked)
        ],
    }


@pytest.mark.slow
def test_tool_calls_and_web_searches_are_replayed(bench, endpoint, monkeypatch):
    def answer(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if not results:
            same = ("web_search", {"query": "France"})
            return calls(
                same, same, ("web_search", {"query": "down"}), ("write_file", {"path": "x", "content": "Paris"})
            )
        return {"role": "assistant", "content": "Paris: " + " | ".join(results)}

    endpoint.answer = answer
    bench.write("conftest.py", SEARCH)
    model(bench, endpoint)
    case = {
        "messages": [{"role": "user", "content": "?"}],
        "context": {"llm_probe": {"tools": ["web_search", "write_file"]}},
    }
    checks = [check("hits", kind="regex_match", pattern=r"hit 1 [\s\S]*hit 2 [\s\S]*OSError: the search is down")]
    checks.append(check("file", kind="file_contains", path="x", text="Paris"))
    bench.case("a", input=case, deterministic_checks=checks)
    recorded = bench.run("--model=gpt", RECORD)
    assert recorded.outcomes == {"a[gpt]": "passed"}, recorded.text
    assert bench.lines("searches.txt") == ["France", "France", "down"]
    [cassette] = cassettes(bench).values()
    exchanges = yaml.safe_load(cassette.read_text())["exchanges"]
    assert [each["asked"] for each in exchanges] == ["gpt", "web_search", "web_search", "web_search", "gpt"]
    assert exchanges[4]["continues"] == 1
    gone(bench, endpoint, monkeypatch)
    bench.write("conftest.py", "")  # and no search either
    replayed = bench.run("--model=gpt", REPLAY)
    assert facts(replayed) == facts(recorded), replayed.text
    assert len(bench.lines("searches.txt")) == 3


@pytest.mark.slow
def test_a_planners_run_is_replayed_with_its_summaries_side_by_side(bench, endpoint, monkeypatch):
    def answer(body):
        asked, number = body["messages"][-1]["content"], next(draws.numbers)
        if "This is round 1 of" in asked:
            calls = [{"tool": "list_files", "parameters": {"path": path}} for path in ("a", "b", "a")]
            text = json.dumps({"reasoning": "Look.", "should_continue": True, "planned_tools": calls})
        else:
            text = '{"should_continue": false}' if "This is round" in asked else f"Paris, draw {number}"
        return {"role": "assistant", "content": text}

    endpoint.answer = answer
    model(bench, endpoint)
    bench.profile("short", planner={"summarise_over_tokens": 1})
    case = {"messages": [{"role": "user", "content": "?"}], "context": {"llm_probe": {"tools": ["list_files"]}}}
    bench.case("a", runner={"type": "mcp_planner"}, input=case)
    options = ("--model=gpt", "--agentbench-run-profile=short")
    recorded = bench.run(*options, RECORD)
    assert recorded.outcomes == {"a[gpt]": "passed"}, recorded.text
    assert len(endpoint.requests) == 5  # two plans, an answer, and a summary of each result that no other equals
    gone(bench, endpoint, monkeypatch)
    replayed = bench.run(*options, REPLAY)
    assert facts(replayed) == facts(recorded), replayed.text
    assert endpoint.requests == []


@pytest.mark.slow
def test_the_workspace_may_lie_elsewhere(bench, endpoint, monkeypatch):
    def answer(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if not results:
            return calls(("exec_shell", {"command": "pwd"}))
        folder = results[0].splitlines()[0]
        if len(results) == 1:
            return calls(("write_file", {"path": f"{folder}/x.txt", "content": "Paris"}))
        return {"role": "assistant", "content": f"Paris, in {folder}"}

    endpoint.answer = answer
    model(bench, endpoint)
    bench.profile("local", sandbox="local")
    case = {
        "messages": [{"role": "user", "content": "?"}],
        "context": {"llm_probe": {"tools": ["exec_shell", "write_file"]}},
    }
    checks = [check("file", kind="file_contains", path="x.txt", text="Paris")]
    bench.case("a", input=case, deterministic_checks=checks, rubric={"criteria": [{"name": "short"}]})
    bench.case("b")
    options = ("--model=gpt", "--agentbench-run-profile=local", profile(bench, **JUDGED))
    judged, endpoint.answer = endpoint.answer, lambda body: draws(body) if "response_format" in body else judged(body)
    recorded = bench.run(*options, RECORD)
    assert recorded.runs["a[gpt]"]["checks"][0]["outcome"] == "passed", recorded.text
    text = cassettes(bench)["a/cassettes/gpt-r1.yaml"].read_text()
    assert "Paris, in [workspace]" in text
    assert not re.search(r"agentbench-\w{8}/", text)
    gone(bench, endpoint, monkeypatch)
    replayed = bench.run(*options, REPLAY)
    assert facts(replayed) == facts(recorded), replayed.text


def test_an_agents_own_client_is_not_recorded(bench, endpoint):
    source = f"""
import json, urllib.request
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        body = json.dumps({{"model": "own", "messages": [{{"role": "user", "content": "mine"}}]}}).encode()
        request = urllib.request.Request("{endpoint.base_url}/chat/completions", body)
        return json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"]
    return agent
"""
    bench.agent(source)
    bench.case("a")
    for count, mode in enumerate((RECORD, REPLAY), start=1):
        finished = bench.run(mode)
        assert finished.outcomes == {"a[agent]": "passed"}
        assert finished.runs["a[agent]"]["cassette"] is None
        assert len(endpoint.requests) == count
    assert not cassettes(bench)


PANEL = """
import itertools, json
from pytest_agentbench import Usage
from pytest_agentbench.judging.asking import JudgeReply
from pytest_agentbench.models.messages import ChatReply

numbers = itertools.count(1)

def note(line):
    with open("asked.txt", "a") as file:
        file.write(line + "\\n")

class Parrot:
    def __init__(self, model):
        self.model = model

    async def complete(self, messages, **options):
        note("parrot")
        text = f"Paris {next(numbers)}"
        usage = Usage(input_tokens=3, output_tokens=3, total_tokens=6, cost_usd=0.25)
        message = {"role": "assistant", "content": text}
        return ChatReply(text, (), "stop", usage, "parrot", None, message, 1, 0.0)

def pytest_agentbench_model_providers():
    return {"parrot": Parrot}

async def panel(messages, judge, case):
    note("panel")
    score = {"score": 7, "evidence": []}
    names = ("task", "process", "autonomy", "closeness", "efficiency", "spark")
    return JudgeReply(json.dumps({"summary": "", "dimensions": dict.fromkeys(names, score), "overall": score}))

def pytest_agentbench_judges():
    return {"panel": panel}
"""


def test_providers_and_judges_of_plugins_are_recorded_too(bench):
    bench.write("conftest.py", PANEL)
    bench.models({"model_id": "bird", "provider": "parrot"})
    bench.case("a", rubric={"criteria": [{"name": "short"}]})
    runs = [{"judge_run_id": "one", "judge_id": "p", "repetitions": 2}]
    options = ("--model=bird", profile(bench, judges=[{"judge_id": "p", "type": "panel"}], judge_runs=runs))
    recorded = bench.run(*options, RECORD)
    assert recorded.outcomes == {"a[bird]": "passed"}, recorded.text
    assert bench.lines("asked.txt") == ["parrot", "panel", "panel"]
    replayed = bench.run(*options, REPLAY)
    assert facts(replayed) == facts(recorded)
    assert len(bench.lines("asked.txt")) == 3


class NoSchemas(FaultEndpoint):
    async def _respond(self, writer, fault, body):
        return await super()._respond(writer, "400" if "response_format" in body else fault, body)


@pytest.mark.slow
def test_a_refusal_of_the_request_itself_is_recorded(bench, endpoint, monkeypatch):
    """A judge's endpoint that knows no schemas: it is asked again without one."""
    said = (400, "response_format is not supported here", "invalid_request_error")
    monkeypatch.setitem(fault_endpoint._ERRORS, "400", said)

    def plain(body):
        return {"role": "assistant", "content": verdict({"response_format": None}, 5)}

    with NoSchemas(answer=plain) as other:
        model(bench, other)
        for case_id in ("a", "b"):
            bench.case(case_id, rubric={"criteria": [{"name": "short"}]}, deterministic_checks=None)
        options = ("--model=gpt", "--agentbench-concurrency=1", profile(bench, **JUDGED))
        recorded = bench.run(*options, RECORD)
        assert recorded.outcomes == {"a[gpt]": "passed", "b[gpt]": "passed"}, recorded.text
    for cassette in cassettes(bench).values():  # on each, so that it can be replayed alone
        kept = yaml.safe_load(cassette.read_text())["exchanges"]
        assert {each["refused"]["code"] for each in kept if "refused" in each} == {"bad_request"}
    gone(bench, other, monkeypatch)
    replayed = bench.run(*options, REPLAY, "-k", "b")
    assert facts(replayed) == {"b[gpt]": facts(recorded)["b[gpt]"]}, replayed.text


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
