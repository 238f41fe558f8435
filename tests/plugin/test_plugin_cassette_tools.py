"""Cassettes of tool calls, workspaces, and the clients and providers of users."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from support import fault_endpoint
from support.bench import check
from support.cassette_sessions import (
    JUDGED,
    RECORD,
    REPLAY,
    cassettes,
    drawing_endpoint,
    draws,
    facts,
    gone,
    model,
    profile,
    verdict,
)
from support.fault_endpoint import FaultEndpoint


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with drawing_endpoint() as endpoint:
        yield endpoint


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
