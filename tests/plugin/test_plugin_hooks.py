"""What a conftest.py adds through the seven hooks, end to end, and what becomes of it when it breaks its contract."""

from __future__ import annotations

import json

import pytest
from support.bench import check

PROVIDER = """
from pytest_agentbench import ChatReply, ProviderError, ToolCall, Usage

class Scripted:
    made = 0

    def __init__(self, model):
        self.model = model
        type(self).made += 1

    async def complete(self, messages, *, tools=(), **options):
        last = messages[-1]
        calls = ()
        if tools and last["role"] == "user":
            name = tools[0]["function"]["name"]
            calls = (ToolCall("c1", name, {"query": last["content"]}, "{}"),)
        text = None if calls else last["content"]
        message = {"role": "assistant", "content": text}
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2, cost_usd=0.5)
        return ChatReply(text, calls, "stop", usage, "scripted-1", None, message, 1, 0.0)

def pytest_agentbench_model_providers():
    return {"scripted": Scripted}
"""

JUDGE = """
import json
from pytest_agentbench import JudgeReply

NAMES = ("task", "process", "autonomy", "closeness", "efficiency", "spark")

def said(score):
    scored = {"score": score, "evidence": ["seen"]}
    return json.dumps({"summary": "Fine.", "dimensions": dict.fromkeys(NAMES, scored), "overall": scored})
"""


def asking(*tools):
    return {"messages": [{"role": "user", "content": "The capital?"}], "context": {"llm_probe": {"tools": list(tools)}}}


def judged_by_panel(bench, conftest):
    bench.agent(
        "import pytest\n" + JUDGE + conftest + "\n"
        "def pytest_agentbench_judges():\n    return {'panel': panel}\n\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return lambda case: 'Paris'\n"
    )
    bench.write(
        "cases/evaluation_profiles/panel.yaml",
        {
            "schema_version": 1,
            "evaluation_profile_id": "panel",
            "title": "Panel",
            "judges": [{"judge_id": "panel", "type": "panel", "mood": "mild"}],
            "judge_runs": [{"judge_run_id": "twice", "judge_id": "panel", "repetitions": 2}],
        },
    )
    bench.case("one", rubric={"scoring_instructions": "How good?"})
    return bench.run("--agentbench-evaluation-profile=panel")


def test_a_runner(bench):
    bench.agent("""
async def echo(case, context):
    context.workspace.write_text("made.txt", "x")
    return context.settings["prefix"] + case.messages[0].content

def pytest_agentbench_runners():
    return {"echo": echo}
""")
    checks = [
        check("said", kind="regex_match", pattern="^> The capital"),
        check("made", kind="file_exists", path="made.txt"),
    ]
    bench.case("one", runner={"type": "echo", "prefix": "> "}, deterministic_checks=checks)
    assert bench.run("--model=demo").outcomes == {"one[demo]": "passed"}


def test_a_tool_and_a_model_provider(bench):
    bench.agent(
        PROVIDER
        + """
from pytest_agentbench import Tool

async def look_up(arguments, context):
    return "found " + arguments["query"]

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}

def pytest_agentbench_tools():
    return {"look_up": Tool("look_up", "Looks it up.", SCHEMA, look_up)}

def pytest_sessionfinish():
    print("MADE", Scripted.made)
"""
    )
    bench.models({"model_id": "local", "provider": "scripted"})
    checks = [
        check("called", kind="tool_called", name="look_up"),
        check("said", kind="regex_match", pattern="^found The capital"),
    ]
    for name in ("one", "two", "three"):
        bench.case(name, input=asking("look_up"), deterministic_checks=checks)
    finished = bench.run("--model=local", "-s")
    assert set(finished.outcomes.values()) == {"passed"}
    assert finished.runs["one[local]"]["cost_usd"]["run"] == 1.0
    assert "MADE 1\n" in finished.text  # a client is the session's, not a run's


def test_a_web_search(bench):
    bench.agent(
        PROVIDER
        + """
from pytest_agentbench import SearchResult

def pytest_agentbench_web_search():
    async def search(query):
        return [SearchResult("Paris", "https://example.org", "on " + query)]
    return search
"""
    )
    bench.models({"model_id": "local", "provider": "scripted"})
    checks = [check("hit", kind="regex_match", pattern="on The capital")]
    bench.case("one", input=asking("web_search"), deterministic_checks=checks)
    assert bench.run("--model=local").outcomes == {"one[local]": "passed"}


def test_a_check_and_a_metric(bench):
    bench.agent("""
import pytest
from pytest_agentbench import Unmet, Verdict

def lines(spec, context):
    return Verdict("passed" if spec.lines == 1 else "failed", f"found {spec.lines}", outputs={"lines": spec.lines})

def lacks(spec, context):
    raise Unmet("there is nothing to look at")

def pytest_agentbench_checks():
    return {"lines": lines, "lacks": lacks}

def pytest_agentbench_metrics():
    return {"half": lambda ground_truth, prediction, of=1: 0.5 * of}

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: "Paris"
""")
    bench.case(
        "good",
        deterministic_checks=[check("c", kind="lines", lines=1)],
        reference="x",
        metrics=[{"name": "half", "threshold": 0.5}],
    )
    bench.case("bad", deterministic_checks=[check("c", kind="lines", lines=2), check("d", kind="lacks")])
    finished = bench.run()
    assert finished.outcomes == {"good[agent]": "passed", "bad[agent]": "failed"}
    assert [c["outcome"] for c in finished.runs["bad[agent]"]["checks"]] == ["failed", "failed"]
    assert finished.runs["good[agent]"]["metrics"]["half"]


def test_a_judge(bench):
    finished = judged_by_panel(
        bench,
        """
async def panel(messages, judge, case):
    assert judge.options == {"mood": "mild"} and "Paris" in messages[1]["content"]
    return JudgeReply(said(7))
""",
    )
    assert finished.outcomes == {"one[agent]": "passed"}
    assert finished.runs["one[agent]"]["final_score"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "message"),
    [
        ("return said(7)", "returned str, expected JudgeReply"),
        ("raise OSError('the panel is out')", "OSError: the panel is out"),
        ("return JudgeReply('no idea')", "not JSON"),
        ("return JudgeReply(said('7.5.1'))", "overall.score"),
        ("return JudgeReply(None)", "the reply is empty"),
    ],
)
def test_a_judge_that_breaks_its_contract_is_an_error_that_keeps_the_run(bench, panel, message):
    finished = judged_by_panel(bench, f"async def panel(messages, judge, case):\n    {panel}\n")
    row = finished.runs["one[agent]"]
    assert (row["outcome"], row["artifact"] is not None) == ("error", True)
    assert message in finished.text
    assert [c["outcome"] for c in row["checks"]] == ["passed"]


def test_a_check_that_returns_something_else_is_an_error_beside_the_other_results(bench):
    bench.agent("""
import pytest
from pytest_agentbench import Verdict

def pytest_agentbench_checks():
    values = [
        None,
        True,
        'passed',
        Verdict('ok', 'fine'),
        Verdict('failed', None),
        Verdict('failed', 'x', expected=3),
    ]
    return {f"odd{number}": lambda spec, context, value=value: value for number, value in enumerate(values)}

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: "Paris"
""")
    good = check("good", kind="regex_match", pattern="P")
    for number in range(6):
        bench.case(f"case{number}", deterministic_checks=[good, check("odd", kind=f"odd{number}")])
    rows = bench.run().runs
    assert len(rows) == 6
    for row in rows.values():
        assert row["outcome"] == "error"
        assert [c["outcome"] for c in row["checks"]] == ["passed", "error"]


def test_a_hook_that_returns_nothing_adds_nothing(bench):
    bench.agent("def pytest_agentbench_checks():\n    pass\n\ndef pytest_agentbench_web_search():\n    pass\n")
    bench.case("one")
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})
    assert bench.run("--model=demo").outcomes == {"one[demo]": "passed"}


def test_a_metric_outside_its_range_is_an_error_never_a_score(bench):
    bench.agent("""
import pytest

def pytest_agentbench_metrics():
    return {
        "text": lambda ground_truth, prediction: '1',
        "none": lambda ground_truth, prediction: None,
        "two": lambda ground_truth, prediction: 2,
        "nan": lambda ground_truth, prediction: float('nan'),
        "broken": lambda ground_truth, prediction: 1 / 0,
    }

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: "Paris"
""")
    names = ["text", "none", "two", "nan", "broken"]
    for name in names:
        bench.case(name, reference="x", metrics=[{"name": name, "threshold": 0.5}])
    assert bench.run().outcomes == {f"{name}[agent]": "error" for name in sorted(names)}


@pytest.mark.parametrize("returned", ["5", "b'Paris'", "['Paris']"])
def test_a_runner_that_returns_no_answer_is_an_invalid_run(bench, returned):
    bench.agent(f"""
async def odd(case, context):
    return {returned}

def pytest_agentbench_runners():
    return {{"odd": odd}}
""")
    bench.case("one", runner={"type": "odd"})
    row = bench.run("--model=demo").runs["one[demo]"]
    assert (row["outcome"], row["status"]) == ("failed", "invalid")


@pytest.mark.parametrize("body", ["return None", "raise KeyError('k')"])
def test_a_tool_that_breaks_tells_the_model(bench, body):
    bench.agent(
        PROVIDER
        + f"""
from pytest_agentbench import Tool

async def call(arguments, context):
    {body}

def pytest_agentbench_tools():
    return {{"broken": Tool("broken", "Breaks.", {{"type": "object"}}, call)}}
"""
    )
    bench.models({"model_id": "local", "provider": "scripted"})
    checks = [check("told", kind="regex_match", pattern="^error: broken")]
    bench.case("one", input=asking("broken"), deterministic_checks=checks)
    assert bench.run("--model=local").outcomes == {"one[local]": "passed"}


BREAKS = """
from pytest_agentbench import Tool

def lookup(arguments, context):
    return {"city": "Paris"}["town"]

def places(arguments, context):
    return {"city": "Paris", "rivers": ["Seine"]}

def pytest_agentbench_tools():
    schema = {"type": "object"}
    return {name.__name__: Tool(name.__name__, "", schema, name) for name in (lookup, places)}
"""


def test_a_tool_that_breaks_is_told_of_and_is_no_call_that_a_check_asks_for(bench):
    bench.agent(BREAKS)
    for name in ("lookup", "places"):
        checks = [check("asked", kind="tool_called", name=name)]
        bench.case(name, input=asking(name), deterministic_checks=checks)
        steps = [{"tool_calls": [{"name": name, "arguments": {}}]}, {"content": "Paris"}]
        bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    finished = bench.run("--model", "demo")
    assert finished.outcomes == {"lookup[demo]": "failed", "places[demo]": "passed"}
    assert "the tool itself broke in 1 further calls, which do not count" in finished.text
    assert "tool lookup broke: error: lookup: KeyError: 'town'" in finished.text
    [told] = finished.report["session"]["warnings"]
    assert told == "tool 'lookup' broke by its own code: error: lookup: KeyError: 'town'"
    trace = (bench.path / "outputs" / finished.runs["places[demo]"]["artifact"]).read_text()
    assert json.dumps('{"city": "Paris", "rivers": ["Seine"]}') in trace
