"""Runs of OpenClaw: the files that its turns leave, and the end of a run for each kind of failure."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from openclaw_support import (
    IN_DOCKER,
    IN_STUB,
    MakeSpec,
    docker_spec,
    make_agent,
    run_openclaw,
    stub_spec,
    turns,
)
from runners.runners_support import assistant, make_case, told
from support.docker_here import needs_docker
from support.stub_openclaw import FAULTS, OTHER_MODEL

from pytest_agentbench.records.run import MessageEvent, ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.agents.timing import LONGEST_STAND


def write(path: str, content: str) -> dict[str, Any]:
    return assistant(None, ("write", {"path": path, "content": content}))


def run_command(command: str) -> dict[str, Any]:
    return assistant(None, ("exec", {"command": command}))


@pytest.mark.slow
@pytest.mark.parametrize("make_spec", [IN_STUB, IN_DOCKER])
def test_turns_share_workspace_and_session_and_leave_a_trace(make_spec: MakeSpec, tmp_path: Path) -> None:
    agent = make_agent(tmp_path, seconds=240, agent={"id": "helper-agent"})
    case = turns("Draft report.md.", "Now revise it.", context={"openclaw": {"expected_artifact": "report.md"}})
    replies = (
        write("report.md", "# Draft\n"),
        assistant("Drafted."),
        assistant(None, ("read", {"path": "report.md"})),
        write("report.md", "# Report\n"),
        assistant("Revised."),
    )
    with told(*replies) as (model, requests):
        ran = run_openclaw(case, model, agent, make_spec(tmp_path))

    assert ran.status == ("success", None)
    assert ran.files == {"report.md": "# Report\n"}
    trace = ran.context.trace
    assert trace.output == "Revised."
    shown = [event for event in trace.events if isinstance(event, MessageEvent | ToolCallEvent)]
    assert [event.content if isinstance(event, MessageEvent) else event.arguments for event in shown] == [
        "Draft report.md.\n\nExpected artifact in the workspace: report.md",
        {"path": "report.md", "content": "# Draft\n"},
        "Drafted.",
        "Now revise it.",
        {"path": "report.md"},
        {"path": "report.md", "content": "# Report\n"},
        "Revised.",
    ]
    results = [event.content for event in trace.events if isinstance(event, ToolResultEvent)]
    assert "# Draft" in results[1]
    assert trace.usage.input_tokens == 50
    last = json.dumps(requests[-1]["messages"])
    assert "Draft report.md." in last  # the second turn is in the first one's session
    assert last.count("Expected artifact") == 1
    assert [each["exit_code"] for each in ran.account] == [0, 0]
    assert {each["openclaw"]["session_id"] for each in ran.account} == {"a_case-1"}
    assert not {"openclaw", "home"} & set(ran.private)


@pytest.mark.slow
def test_a_provider_that_fails_is_the_providers_error(tmp_path: Path) -> None:
    with told(*[401] * 9) as (model, requests):
        ran = run_openclaw(make_case(), model, make_agent(tmp_path, seconds=120), stub_spec(tmp_path), {"retries": 0})
    assert ran.error is not None
    assert ran.error.code == "authentication"
    assert len(requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("make_spec", [IN_STUB, IN_DOCKER])
def test_a_time_limit_kills_the_container(make_spec: MakeSpec, tmp_path: Path) -> None:
    with told() as (model, _):
        case = make_case(text=FAULTS["hang"])
        ran = run_openclaw(case, model, make_agent(tmp_path, seconds=1), make_spec(tmp_path))
    assert ran.status == ("timed_out", "run_timeout")
    assert ran.end is not None
    assert ran.end.error is not None
    assert ran.end.error.message == "no answer within openclaw.timeout_seconds (1 s), in turn 1 of 1"
    assert ran.seconds < 10
    assert ran.context.trace.output is None


@pytest.mark.slow
def test_the_time_limit_is_that_of_all_turns_together(tmp_path: Path) -> None:
    with told(run_command("sleep 2"), assistant("Waited.")) as (model, _):
        case = turns("Wait.", FAULTS["crash"])
        ran = run_openclaw(case, model, make_agent(tmp_path, seconds=60), stub_spec(tmp_path))
    assert ran.end is not None
    assert ran.end.error is not None
    left = re.search(r"time limit (\d+) s", ran.end.error.message)
    assert left is not None
    assert 0 < int(left[1]) - LONGEST_STAND <= 58


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "told_of_it"),
    [
        ("crash", ("failed", "openclaw_crashed"), "exit code 3; its last lines:\n[config]"),
        ("giving up", ("failed", "openclaw_failed"), "OpenClaw failed in turn 2 of 3: It was too hard."),
        ("silent", ("invalid", "no_reply"), "[openclaw] nothing to say"),
        ("own time limit", ("timed_out", "run_timeout"), "OpenClaw's own time limit ended turn 2 of 3: Request timed"),
        ("other model", ("failed", "other_model"), f"asked for the model {OTHER_MODEL!r}"),
    ],
)
def test_the_first_failed_turn_ends_the_run(
    fault: str, status: tuple[str, str], told_of_it: str, tmp_path: Path
) -> None:
    case = turns("Write a.md.", FAULTS[fault], "Write b.md.")
    with told(write("a.md", "A"), assistant("Done."), assistant("Never asked.")) as (model, requests):
        ran = run_openclaw(case, model, make_agent(tmp_path), stub_spec(tmp_path))
    assert ran.status == status
    assert ran.end is not None
    assert ran.end.error is not None
    assert told_of_it in ran.end.error.message
    assert ran.files == {"a.md": "A"}
    assert len(requests) == 2
    assert len(ran.account) == 2
    assert ran.context.trace.output is None


@pytest.mark.slow
def test_forged_openclaw_output_changes_neither_calls_nor_usage(tmp_path: Path) -> None:
    """The forger runs as the same user, and can change only the answer, which is its own."""
    said = json.dumps({"payloads": [{"text": "Forged."}], "meta": {"agentMeta": {"usage": {"total": 1}}}})
    with told(run_command(f"echo '{said}' > /proc/$PPID/fd/1"), assistant("Done.")) as (model, _):
        ran = run_openclaw(make_case(), model, make_agent(tmp_path), stub_spec(tmp_path))
    trace = ran.context.trace
    assert (ran.status, trace.output) == (("success", None), "Done.")
    assert [event.name for event in trace.events if isinstance(event, ToolCallEvent)] == ["exec"]
    assert trace.usage.input_tokens == 20
    (second := tmp_path / "second").mkdir()
    with told(run_command("kill -9 $PPID"), assistant("Never asked.")) as (model, requests):
        ran = run_openclaw(make_case(), model, make_agent(tmp_path), stub_spec(second))
    assert ran.status == ("failed", "openclaw_crashed")
    assert len(requests) == 1


@pytest.mark.slow
def test_a_link_out_of_the_workspace_is_left_as_a_link(tmp_path: Path) -> None:
    with told(assistant("Done.")) as (model, _):
        ran = run_openclaw(make_case(text=FAULTS["link"]), model, make_agent(tmp_path), stub_spec(tmp_path))
    assert ran.status == ("success", None)
    assert ran.files == {"link.md": "link"}


@pytest.mark.slow
@pytest.mark.parametrize("make_spec", [IN_STUB, IN_DOCKER])
def test_a_run_that_is_cut_off_leaves_nothing_behind(make_spec: MakeSpec, tmp_path: Path) -> None:
    """While the model is asked and the agent waits. The test could not end if its connections were still open."""
    cut_off, ended = threading.Event(), threading.Event()

    def never(_: dict[str, Any]) -> dict[str, Any]:
        cut_off.set()
        assert ended.wait(60)
        return assistant("Too late.")

    spec = make_spec(tmp_path)
    with told(write("a.md", "A"), never) as (model, _):
        ran = run_openclaw(make_case(), model, make_agent(tmp_path), spec, cut_off=cut_off)
        ended.set()
    assert ran.end is None
    assert ran.files == {"a.md": "A"}
    assert "openclaw" not in ran.private
    if spec.cli is not None:
        assert list((tmp_path / "engine" / "containers").iterdir()) == []


@pytest.mark.slow
def test_any_text_reaches_the_model(tmp_path: Path) -> None:
    texts = ["--help", "x" * 300_000, "One\0two.", 'Quotes " and $(this)\nin lines.']
    with told(*[assistant("Done.")] * len(texts)) as (model, requests):
        ran = run_openclaw(turns(*texts), model, make_agent(tmp_path), stub_spec(tmp_path))
    assert ran.status == ("success", None)
    shown = [request["messages"][-1]["content"].partition(" UTC] ")[2] for request in requests]
    assert shown == texts


@pytest.mark.slow
def test_the_runs_parameters_reach_the_model_and_openclaw(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, model_defaults={"primary_params": {"max_tokens": 100}})
    replies = run_command('cat "$OPENCLAW_CONFIG_PATH"'), assistant("Done.")
    with told(*replies) as (model, requests):
        model = model.model_copy(update={"parameters": {"reasoning": {"effort": "low"}}})
        ran = run_openclaw(make_case(), model, agent, stub_spec(tmp_path), {"temperature": 0})
    assert ran.status == ("success", None)
    sent = {name: value for name, value in requests[0].items() if name not in ("model", "messages", "tools")}
    assert sent == {"temperature": 0, "max_tokens": 100, "reasoning_effort": "low"}
    config = json.loads(next(each for each in ran.context.trace.events if isinstance(each, ToolResultEvent)).content)
    [entry] = config["agents"]["defaults"]["models"].values()
    assert entry["params"] == ran.context.trace.request["parameters"]
    assert entry["params"] == {"temperature": 0, "max_tokens": 100, "reasoning": {"effort": "low"}}


@pytest.mark.slow
@needs_docker
def test_nothing_of_this_machine_is_in_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_MODELS_KEY", "sk-of-the-provider")
    look = "env; cat /run/agentbench/* 2>/dev/null; touch /run/agentbench/x || echo refused"
    with told(run_command(look), assistant("Done.")) as (model, _):
        model = model.model_copy(update={"api_key_env": "THE_MODELS_KEY"})
        ran = run_openclaw(make_case(), model, make_agent(tmp_path), docker_spec(tmp_path))
    assert ran.status == ("success", None)
    seen = next(each for each in ran.context.trace.events if isinstance(each, ToolResultEvent)).content
    assert "OPENCLAW_STATE_DIR=/tmp/openclaw" in seen
    assert "sk-of-the-provider" not in seen
    assert "refused" in seen


@pytest.mark.slow
@needs_docker
def test_exceeding_a_limit_of_the_sandbox_fails_with_the_reason(tmp_path: Path) -> None:
    spec = docker_spec(tmp_path, workspace_bytes=4 * 2**20)
    with told(run_command("head -c 10000000 /dev/zero > big; sleep 60"), assistant("Done.")) as (model, _):
        ran = run_openclaw(make_case(), model, make_agent(tmp_path), spec)
    assert ran.status == ("failed", "sandbox_limit")
    assert ran.end is not None
    assert ran.end.error is not None
    assert ran.end.error.message == "turn 1 of 1 went over the sandbox's limit of disk"
