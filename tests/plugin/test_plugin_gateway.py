"""Sessions of a user's own agents that ask the run's model through `context.gateway`."""

from __future__ import annotations

import json

import pytest
from support.bench import HEAD
from support.fault_endpoint import FaultEndpoint, always
from support.stored import find_stored

ASKING = (
    HEAD
    + """
import httpx2

def body(case, context, **fields):
    messages = [{"role": "user", "content": case.messages[0].content}]
    return {"model": context.gateway.model, "messages": messages, **fields}

def ask(case, context, **fields):
    gateway = context.gateway
    response = httpx2.post(
        f"{gateway.openai_base_url}/chat/completions",
        json=body(case, context, **fields),
        headers={"authorization": f"Bearer {gateway.key}"},
    )
    return response.json()["choices"][0]["message"]["content"] if response.status_code == 200 else response.text
"""
)

IN_A_THREAD = ASKING + "def agent(case, context): return ask(case, context)"
IN_A_COROUTINE = (
    ASKING
    + """
async def agent(case, context):
    async with httpx2.AsyncClient() as http:
        headers = {"x-agentbench-run": context.gateway.key, "authorization": "Bearer sk-somebodys"}
        url = context.gateway.openai_base_url + "/chat/completions"
        response = await http.post(url, json=body(case, context), headers=headers)
    return response.json()["choices"][0]["message"]["content"]
"""
)
BY_VARIABLES = (
    ASKING
    + """
def agent(case, context):
    import openai
    client = openai.OpenAI()
    messages = [{"role": "user", "content": case.messages[0].content}]
    answer = client.chat.completions.create(model=context.model.requested_model, messages=messages)
    note("keys.txt", os.environ["OPENAI_API_KEY"])
    return answer.choices[0].message.content
"""
)
USAGE = {"input_tokens": 11, "output_tokens": 3, "cached_tokens": 2}
DEMO = {"schema_version": 1, "replies": [{"steps": [{"content": "It is Paris.", "usage": USAGE}]}]}


def stored_run(bench):
    [run] = find_stored(bench.path / "outputs", "run_1.json")
    return json.loads(run.read_text())


def model(bench, endpoint, monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-bench")
    bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "BENCH_KEY", "limits": {}})


@pytest.mark.parametrize("agent", [IN_A_THREAD, IN_A_COROUTINE])
def test_an_own_agent_asks_the_runs_model_at_its_gateway(bench, agent):
    bench.write("conftest.py", agent)
    bench.case("one")
    bench.write("cases/one/demo.yaml", DEMO)
    finished = bench.run("--model=demo")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    run = stored_run(bench)
    assert run["usage"]["input_tokens"] == 11
    assert run["usage"]["cached_tokens"] == 2
    assert run["runner_type"] == "callable"
    assert run["model"]["model_id"] == "demo"
    assert run["provider"]["usage_source"] == "gateway_partial"
    way = {"dialect": "chat", "wire": "chat", "mode": "relay"}
    assert run["provider"]["gateway"]["dialects"] == [way]
    assert run["provider"]["gateway"].get("foreign_key", False) == (agent is IN_A_COROUTINE)


def test_without_a_model_there_is_nobody_to_ask(bench):
    bench.write("conftest.py", IN_A_THREAD)
    bench.case("one")
    finished = bench.run()
    assert "ConfigError: context.gateway: found no model to ask; name one with --model" in finished.text
    assert finished.outcomes == {"one[agent]": "error"}


@pytest.mark.slow
def test_variables_are_set_around_each_run_which_is_then_alone(bench, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    bench.write("conftest.py", BY_VARIABLES)
    bench.profile("many", policy={"max_concurrency": 4})
    for number in range(4):
        bench.case(f"case_{number}", runner={"type": "llm_probe", "env": "serial"})
        bench.write(f"cases/case_{number}/demo.yaml", DEMO)
    finished = bench.run("--model=demo", "--agentbench-run-profile=many")
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    assert len(set(bench.lines("keys.txt"))) == 4


def test_the_key_of_the_model_takes_precedence_over_environment_variables(bench, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    bench.write("conftest.py", BY_VARIABLES)
    with FaultEndpoint(answer=lambda body: {"role": "assistant", "content": "Paris"}) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "OPENAI_API_KEY"})
        bench.case("one", runner={"type": "llm_probe", "env": "serial"})
        finished = bench.run("--model=m")
        assert finished.outcomes == {"one[m]": "passed"}, finished.text
        assert [request.headers["authorization"] for request in endpoint.requests] == ["Bearer sk-real"]


@pytest.mark.slow
def test_an_outage_that_an_agent_hides_is_its_providers_and_no_success(bench, monkeypatch):
    bench.write("conftest.py", ASKING + "def agent(case, context): ask(case, context); return 'Paris'")
    with FaultEndpoint(always("401")) as endpoint:
        model(bench, endpoint, monkeypatch)
        bench.case("one")
        finished = bench.run("--model=m")
    assert finished.outcomes == {"one[m]": "error"}, finished.text
    run = stored_run(bench)
    assert (run["status"], run["end_reason"]) == ("provider_error", "authentication")


@pytest.mark.slow
def test_an_agent_that_fails_by_an_outage_is_no_broken_agent(bench, monkeypatch):
    failing = "def agent(case, context): raise RuntimeError(ask(case, context))"
    bench.write("conftest.py", ASKING + failing)
    with FaultEndpoint(always("401")) as endpoint:
        model(bench, endpoint, monkeypatch)
        bench.case("one")
        finished = bench.run("--model=m")
    assert "RuntimeError" not in finished.text
    run = stored_run(bench)
    assert run["status"] == "provider_error"


@pytest.mark.slow
def test_a_tool_that_a_provider_would_run_fails_the_run(bench):
    agent = "def agent(case, context): ask(case, context, tools=[{'type': 'web_search'}]); return 'Paris'"
    bench.write("conftest.py", ASKING + agent)
    bench.case("one")
    bench.write("cases/one/demo.yaml", DEMO)
    finished = bench.run("--model=demo")
    assert finished.outcomes == {"one[demo]": "failed"}
    run = stored_run(bench)
    assert run["error"]["code"] == "server_tool"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("context.gateway.key", "no request arrived"),
        ("ask(case, context, model='gpt-x')", "it asked for the model 'gpt-x' at /v1/chat/completions, which is not"),
        (
            "httpx2.post(context.gateway.openai_base_url + '/embeddings', json={})",
            "it asked at POST /v1/embeddings, which is not served",
        ),
    ],
)
def test_a_program_that_asked_nothing_of_its_gateway_says_so_where_it_fails(bench, does, told):
    bench.write("conftest.py", ASKING + f"def agent(case, context): {does}; return 'Rome'")
    bench.case("one")
    finished = bench.run("--model=demo")
    assert finished.outcomes == {"one[demo]": "failed"}, finished.text
    said = f"this program sent no request to the run's gateway: {told}"
    assert said in " ".join(finished.text.split())
    assert finished.runs["one[demo]"]["asked_nothing"].startswith(said)
    assert stored_run(bench)["provider"]["asked_nothing"].startswith(said)


@pytest.mark.slow
def test_a_client_that_is_made_in_the_first_run_asks_for_no_other(bench):
    agent = """
clients = []
both = threading.Barrier(2)

async def agent(case, context):
    import openai
    if not clients:
        clients.append(openai.AsyncOpenAI(base_url=context.gateway.openai_base_url, api_key="x", max_retries=0))
    await asyncio.to_thread(both.wait)
    messages = [{"role": "user", "content": case.messages[0].content}]
    try:
        answer = await clients[0].chat.completions.create(model="demo", messages=messages)
        return answer.choices[0].message.content
    except openai.APIStatusError as error:
        return str(error)
"""
    bench.write("conftest.py", ASKING + agent)
    for number in range(2):
        bench.case(f"case_{number}")
        bench.write(f"cases/case_{number}/demo.yaml", DEMO)
    finished = bench.run("--model=demo")
    assert sorted(finished.outcomes.values()) == ["failed", "passed"], finished.text
    [told] = [row["asked_nothing"] for row in finished.runs.values() if row["outcome"] == "failed"]
    assert "1 request came with the token of another run, by a client that several runs share" in told
    assert "send `gateway.headers` with each request" in told


def test_usage_reported_by_an_agent_is_kept_next_to_the_counted_usage(bench):
    agent = """
def agent(case, context):
    return RunOutput(output=ask(case, context), usage=Usage(input_tokens=12, output_tokens=3))
"""
    bench.write("conftest.py", ASKING + agent)
    bench.case("one")
    bench.write("cases/one/demo.yaml", DEMO)
    finished = bench.run("--model=demo")
    run = stored_run(bench)
    assert run["usage"]["input_tokens"] == 11
    assert run["provider"]["agent_reported"]["input_tokens"] == 12
    [event] = [each for each in run["trace"] if each.get("name") == "usage_mismatch"]
    assert event["data"] == {"agent": {"input": 12}, "seen": {"input": 11}}
    assert "usage_mismatch: the agent reports other token counts than its gateway: input 12 for 11" in finished.text


@pytest.mark.slow
def test_a_session_without_a_gateway_imports_none(bench):
    bench.write(
        "conftest.py",
        HEAD
        + """
import sys

def agent(case, context):
    return "Paris"

def pytest_unconfigure(config):
    note("loaded.txt", " ".join(name for name in sys.modules if "runners.gateway" in name or name == "starlette"))
""",
    )
    bench.case("one")
    bench.spawn("--model=demo")
    assert bench.lines("loaded.txt") == [""]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["html", "html-404", "text"])
def test_a_page_of_a_proxy_between_good_answers_never_reaches_the_agent(bench, monkeypatch, page):
    bench.write("conftest.py", IN_A_THREAD)
    for number in range(6):
        bench.case(f"case_{number}")

    def choose(message: str, nth: int) -> str:
        return page if "case_3" in message and nth == 0 else "ok"

    with FaultEndpoint(choose, answer=lambda body: {"role": "assistant", "content": "Paris"}) as endpoint:
        model(bench, endpoint, monkeypatch)
        finished = bench.run("--model=m", "--agentbench-concurrency=1")
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
