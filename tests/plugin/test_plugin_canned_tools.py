"""Cases that define tools with their results."""

from __future__ import annotations

from support.bench import check

WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {"city": "string"},
    "returns": [{"when": {"city": "Paris"}, "value": {"degrees": 18}}],
}


def asking(*tools):
    messages = [{"role": "user", "content": "How warm is it?"}]
    return {"messages": messages, "context": {"llm_probe": {"tools": list(tools)}}}


def called_by(*calls):
    steps = [{"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}]
    return {"schema_version": 1, "replies": [{"steps": [*steps, {"content": "18 degrees"}]}]}


def test_only_calls_that_a_canned_tool_took_count_as_called(bench):
    counts = {
        "taken": [("get_weather", {"city": "Paris"})],
        "unmatched": [("get_weather", {"city": "Oslo"})],
        "invalid": [("get_weather", {"town": "Paris"})],
        "unknown": [("weather", {"city": "Paris"})],
        "closed": [("book", {"city": "Paris"})],
    }
    names = {"unknown": "weather", "closed": "book"}
    booking = {"name": "book", "parameters": {"city": "string"}, "error": "closed"}
    for case_id, calls in counts.items():
        checks = [check("called", kind="tool_called", name=names.get(case_id, "get_weather"))]
        bench.case(case_id, input=asking(WEATHER, booking), deterministic_checks=checks)
        bench.write(f"cases/{case_id}/demo.yaml", called_by(*calls))
    finished = bench.run("--model=demo")
    outcomes = {name.removesuffix("[demo]"): outcome for name, outcome in finished.outcomes.items()}
    failed = dict.fromkeys(("unmatched", "invalid", "unknown"), "failed")
    assert outcomes == {"taken": "passed", "closed": "passed", **failed}
    assert "1 further calls, which do not count, were refused for their name or arguments" in finished.text


def test_an_edited_result_makes_a_new_run_and_others_are_reused(bench):
    checks = [check("called", kind="tool_called", name="get_weather")]
    for case_id in ("edited", "same"):
        bench.case(case_id, input=asking(WEATHER), deterministic_checks=checks)
        bench.write(f"cases/{case_id}/demo.yaml", called_by(("get_weather", {"city": "Paris"})))
    bench.run("--model=demo")
    colder = {**WEATHER, "returns": [{"when": {"city": "Paris"}, "value": {"degrees": 17}}]}
    bench.case("edited", input=asking(colder), deterministic_checks=checks)
    runs = bench.run("--model=demo").runs
    assert {name: row["reused"] for name, row in runs.items()} == {"edited[demo]": False, "same[demo]": True}


def test_wrong_definitions_are_errors_of_the_file_with_their_places(bench):
    path = bench.write(
        "cases/one/test.yaml",
        """schema_version: 1
case_id: one
title: One
runner: {type: llm_probe}
input:
  messages: [{role: user, content: How warm is it?}]
  context:
    llm_probe:
      tools:
        - read_fil
        - {name: read_file, returns: [{when: {path: x}, value: 1}]}
        - {name: read_file, returns: text}
        - {name: read_file, returns: text, delay: 3}
        - 17
deterministic_checks:
  - {check_id: any, declarative: {kind: final_response_present}}
""",
    )
    text = bench.run("--model=demo").text
    tools = "input.context.llm_probe.tools"
    for line in (
        f":10:11: {tools}[0]: unknown tool 'read_fil'; did you mean 'read_file'?",
        f":11:53: {tools}[1].returns[0].when.path: unknown argument; there are none",
        f":13:51: {tools}[3].delay: unknown field; there is description, error, name, parameters, returns",
        f":14:11: {tools}[4]: found 17, expected a name, or {{name, description, parameters, returns}}",
    ):
        assert f"{path}{line}\n" in text
