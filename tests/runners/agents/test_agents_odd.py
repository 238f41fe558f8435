"""Runs of an agent whose adapter, tools or output are odd: whose fault each trouble is, and what the run has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import needs_bubblewrap

AGENT = Path(__file__).parents[2] / "support" / "odd_agent.py"
SHELL = {"tool_calls": [{"portable": "shell", "arguments": {"command": "echo Paris"}}]}
ANSWER = {"content": "Paris"}


def run(bench: Bench, *steps: Any, odd: Any = None, checks: Any = None, **fields: Any) -> Finished:
    """Run a case of the odd agent with these steps of its script and fields of its adapter."""
    variables = {f"ODD_{name.upper()}": value for name, value in (odd or {}).items()}
    adapter = {
        "schema_version": 1,
        "name": "odd",
        "title": "Odd",
        "licence": "MIT",
        "install": {"pypi": "odd==1.0.0"},
        "dialects": ["chat"],
        "argv": ["python3", "{root}/programs/agent.py", "{message}"],
        "env": variables,
        "answer": {"from": "stdout"},
        "tools": {"shell": {"name": "sh", "arguments": {"command": "{command}"}}},
        **fields,
    }
    bench.write("cases/agents/odd/agent.yaml", adapter)
    bench.write("cases/programs/agent.py", AGENT.read_text(encoding="utf-8"))
    bench.case(
        "one",
        runner={"type": "agent", "agent": "odd", "sandbox": "local"},
        input={"messages": [{"role": "user", "content": "Say it."}]},
        deterministic_checks=checks or [check("says", kind="regex_match", pattern="Paris")],
    )
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    return bench.run("--model", "demo", "cases")


def artifact(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_a_portable_call_of_a_tool_that_is_not_offered_is_an_error_of_the_adapter(bench: Bench) -> None:
    finished = run(bench, SHELL, ANSWER, odd={"tools": '{"bash": ["command"]}'})
    assert finished.outcomes == {"one[demo]": "error"}
    assert "cases/agents/odd/agent.yaml:" in finished.text
    assert "tools.shell.name is 'sh'; the request offers: bash{command}. Closest for shell" in finished.text


@pytest.mark.slow
def test_a_request_in_an_excluded_api_only_is_an_error_of_the_adapter(bench: Bench) -> None:
    finished = run(bench, ANSWER, dialects=["messages"])
    assert finished.outcomes == {"one[demo]": "error"}
    said = "the program asks Chat Completions (POST /v1/chat/completions, 1 time); found dialects: [messages]; write"
    assert said in finished.text.replace("\n", " ")


@pytest.mark.slow
def test_a_call_that_the_agent_rejects_does_not_count_as_a_call(bench: Bench) -> None:
    steps = [{"tool_calls": [{"name": "nosuch"}, {"name": "sh", "arguments": {"command": "echo 1"}}]}, ANSWER]
    checks = [check(name, kind="tool_called", name=name) for name in ("nosuch", "sh")]
    finished = run(bench, *steps, checks=checks)
    assert finished.outcomes == {"one[demo]": "failed"}
    assert "0 calls of nosuch as described, expected at least 1; 1 further calls" in finished.text
    assert (
        "the model called the tool 'nosuch', which the request does not offer; it offers: sh{command}" in finished.text
    )
    calls = {e["name"]: e["offered"] for e in artifact(bench)["trace"] if e["type"] == "tool_call"}
    assert calls == {"nosuch": False, "sh": True}


@pytest.mark.slow
def test_the_answer_is_the_models_text_whatever_the_program_prints(bench: Bench) -> None:
    exact = [check("exact", kind="regex_match", pattern=r"\AParis\Z")]
    finished = run(bench, SHELL, ANSWER, odd={"print": "banner"}, answer={"from": "reply"}, checks=exact)
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text


@pytest.mark.slow
def test_a_finish_without_the_content_goes_with_the_text(bench: Bench) -> None:
    finished = run(
        bench,
        SHELL,
        ANSWER,
        odd={"tools": '{"sh": ["command"], "done": ["status"]}', "finish": "done"},
        finish={"name": "done", "arguments": {"status": "ok"}},
    )
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    requests = [e for e in artifact(bench)["trace"] if e.get("name") == "request"]
    assert len(requests) == 2


@pytest.mark.slow
def test_skipped_steps_of_a_script_are_a_warning(bench: Bench) -> None:
    finished = run(bench, SHELL, SHELL, ANSWER, odd={"tools": "{}"})
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert "2 steps of the script with tool calls skipped: no request of the turn offers tools" in finished.text


@pytest.mark.slow
def test_results_that_return_as_user_texts_belong_to_their_calls(bench: Bench) -> None:
    second = {"tool_calls": [{"portable": "shell", "arguments": {"command": "echo Rome"}}]}
    finished = run(bench, SHELL, second, ANSWER, odd={"results": "user"})
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    results = [e["content"] for e in artifact(bench)["trace"] if e["type"] == "tool_result"]
    assert results == ["Observation: Paris\n", "Observation: Rome\n"]


@pytest.mark.slow
@needs_bubblewrap
def test_a_program_of_the_repository_is_visible_and_the_cases_are_not(bench: Bench) -> None:
    bench.write("cases/programs/words.txt", "Paris\n")
    bench.write(
        "cases/programs/say.py",
        "import pathlib, os\nhere = pathlib.Path(__file__).parent\n"
        "print((here / 'words.txt').read_text(), os.path.exists(here.parent / 'one' / 'demo.yaml'))\n",
    )
    command = ["python3", "{root}/cases/programs/say.py"]
    bench.case(
        "one",
        runner={"type": "command", "command": command, "sandbox": "bubblewrap"},
        deterministic_checks=[check("says", kind="regex_match", pattern="Paris\\s+False")],
    )
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [ANSWER]})
    assert bench.run("--model", "demo", "cases").outcomes == {"one[demo]": "passed"}


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "ls {root}"], "a folder with cases, whose answers the program must not see"),
        (["python3", "{root}/nothing.py"], "command[1]: there is no file "),
    ],
)
def test_a_wrong_path_below_the_root_is_named(bench: Bench, command: list[str], said: str) -> None:
    bench.case("one", runner={"type": "command", "command": command, "sandbox": "bubblewrap"})
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [ANSWER]})
    assert said in " ".join(bench.run("--model", "demo", "cases", "-rs").text.split())
