"""Where an agent's answer, its error, its session and its own count of tokens stand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_agentbench.config.agent_file import Reading, UsageReading
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.runners.agents.adapter import find_adapter, list_adapters
from pytest_agentbench.runners.agents.reading import (
    Answer,
    ProgramOutput,
    look_up,
    make_answer,
    read_answer,
    read_usage,
)


def reading(**fields: Any) -> Reading:
    return Reading.model_validate(fields)


def lines(*objects: Any) -> str:
    return "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in objects)


def said(name: str, stdout: str, stderr: str = "", **files: str) -> Answer:
    """What the adapter of that name reads."""
    program = find_adapter(name).program
    named = {program.answer.file: files["file"]} if program.answer.file else {}
    return read_answer(program.answer, program.error, program.session, ProgramOutput(stdout, stderr, named))


def test_stdout_is_the_answer_by_default() -> None:
    assert read_answer(Reading(), None, None, ProgramOutput("\n It is 42. \n")) == Answer("It is 42.")


def test_the_last_object_that_matches_counts() -> None:
    where = reading(**{"from": "stdout_jsonl", "where": {"type": "text", "part.final": True}, "path": "part.text"})
    stdout = lines(
        {"type": "text", "part": {"final": True, "text": "first"}},
        {"type": "text", "part": {"final": True, "text": "last"}},
        {"type": "text", "part": {"final": False, "text": "more"}},
        "no JSON {",
    )
    assert read_answer(where, None, None, ProgramOutput(stdout)).text == "last"


@pytest.mark.parametrize(
    "stdout", ["", "null", "[]", "{", "[1, 2", '{"a": 1}', '{"result": null}', "[" * 5000, "3 apples"]
)
def test_output_without_the_path_has_no_answer(stdout: str) -> None:
    where = reading(**{"from": "stdout_json", "path": "result"})
    assert read_answer(where, None, None, ProgramOutput(stdout)).text is None


def test_json_is_found_below_logs_and_above_them() -> None:
    where = reading(**{"from": "stdout_json", "path": "result"})
    stdout = f"[info] begins\n{json.dumps({'result': 'yes'}, indent=2)}\nbye\n"
    assert read_answer(where, None, None, ProgramOutput(stdout)).text == "yes"


def test_the_last_element_of_a_list_that_matches_counts() -> None:
    where = reading(**{"from": "stdout_json", "where": {"type": "text"}, "path": "text"})
    stdout = json.dumps([{"type": "text", "text": "first"}, {"type": "text", "text": "last"}, {"type": "end"}])
    assert read_answer(where, None, None, ProgramOutput(stdout)).text == "last"


def test_an_error_beside_the_answer() -> None:
    where = reading(**{"from": "stdout_json", "path": "result", "error_path": "is_error"})
    assert read_answer(where, None, None, ProgramOutput('{"result": "no key", "is_error": true}')).error == "no key"
    assert read_answer(where, None, None, ProgramOutput('{"result": "fine", "is_error": false}')).error is None


def test_paths() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "c": {"x": {"n": 3}, "y": {"n": 4}}}
    assert [*look_up(value, "a.1.b")] == [2]
    assert [*look_up(value, "a.*.b")] == [1, 2]
    assert [*look_up(value, "c.*.n")] == [3, 4]
    assert [*look_up(value, "a.7.b")] == [*look_up(value, "a.b")] == [*look_up(value, "z")] == []


def test_output_of_codex_is_read() -> None:
    stdout = lines(
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "item.completed", "item": {"type": "error", "message": "unknown model"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "Written."}},
        {"type": "turn.completed", "usage": {"input_tokens": 33, "cached_input_tokens": 6, "output_tokens": 9}},
    )
    assert said("codex", stdout) == Answer("Written.", None, "t-1")
    failed = lines({"type": "thread.started", "thread_id": "t-1"}, {"type": "turn.failed", "error": {"message": "400"}})
    assert said("codex", failed) == Answer(None, "400", "t-1")
    reported = find_adapter("codex").program.reported
    assert reported is not None
    assert read_usage(reported, "stdout_jsonl", ProgramOutput(stdout)) == {
        "input": 33,
        "cached": 6,
        "output": 9,
        "reasoning": 0,
    }


def test_output_of_gemini_cli_is_read() -> None:
    tokens = {"prompt": 22, "candidates": 5, "thoughts": 1, "cached": 4}
    stdout = json.dumps(
        {"session_id": "g-1", "response": "Done.", "stats": {"models": {"m": {"tokens": tokens}}}}, indent=2
    )
    assert said("gemini_cli", stdout) == Answer("Done.", None, "g-1")
    assert said("gemini_cli", "", 'Loaded.\n{\n  "error": {"message": "no_answer"}\n}\n').error == "no_answer"
    reported = find_adapter("gemini_cli").program.reported
    assert reported is not None
    assert read_usage(reported, "stdout_json", ProgramOutput(stdout)) == {
        "input": 22,
        "cached": 4,
        "output": 6,
        "reasoning": 1,
    }


def test_output_of_qwen_code_is_read() -> None:
    end = {"type": "result", "result": "Done.", "is_error": False, "session_id": "q"}
    assert said("qwen_code", lines({"type": "system"}, end)) == Answer("Done.", None, "q")


def test_output_of_opencode_is_read() -> None:
    step = {
        "type": "step_finish",
        "part": {"tokens": {"input": 9, "output": 2, "reasoning": 1, "cache": {"read": 2, "write": 0}}},
    }
    stdout = lines(step, {"type": "text", "sessionID": "o", "part": {"text": "Done."}}, step)
    assert said("opencode", stdout).text == "Done."
    reported = find_adapter("opencode").program.reported
    assert reported is not None
    assert read_usage(reported, "stdout_jsonl", ProgramOutput(stdout)) == {
        "input": 22,
        "cached": 4,
        "output": 6,
        "reasoning": 2,
    }


def test_output_of_mini_swe_agent_is_read() -> None:
    done = json.dumps({"info": {"exit_status": "Submitted", "submission": "Done.\n"}})
    assert said("mini_swe_agent", "", file=done).text == "Done."
    assert said("mini_swe_agent", "", file=done.replace("Submitted", "LimitsExceeded")).text is None


def test_output_of_claude_code_is_read() -> None:
    stdout = lines({"type": "system"}, {"type": "result", "result": "Done.", "is_error": False, "session_id": "c"})
    assert said("claude_code", stdout) == Answer("Done.", None, "c")


def test_output_of_cline_is_read() -> None:
    usage = {"inputTokens": 33, "outputTokens": 9, "cacheReadTokens": 6, "cacheWriteTokens": 0, "totalCost": 0}
    stdout = lines(
        {"type": "agent_event", "event": {"type": "done", "text": "Not this."}},
        {"type": "run_result", "finishReason": "completed", "usage": usage, "text": "Done."},
    )
    assert said("cline", stdout) == Answer("Done.")
    reported = find_adapter("cline").program.reported
    assert reported is not None
    counts = {"input": 33, "cached": 6, "output": 9}
    assert read_usage(reported, "stdout_jsonl", ProgramOutput(stdout)) == counts


def test_an_error_of_continue_is_read() -> None:
    assert said("cn", "", '{"status":"error","message":"400 no_answer"}\n').error == "400 no_answer"


def test_every_adapter_is_sound() -> None:
    for name in list_adapters():
        adapter = find_adapter(name)
        assert adapter.lock is not None, name
        assert adapter.lock.is_file(), name
        assert adapter.program.verified is None or adapter.program.verified.version == adapter.program.install.version
        assert "://" not in adapter.lock.read_text(encoding="utf-8"), name


def test_output_without_usage_has_no_usage() -> None:
    usage = UsageReading.model_validate({"where": {"type": "x"}, "input": "a", "output": "b"})
    assert read_usage(usage, "stdout_jsonl", ProgramOutput("{}\n")) == {}


def test_a_reader_of_ones_own_returns_a_text_or_a_mapping() -> None:
    assert make_answer("Paris", "read.py") == Answer("Paris")
    assert make_answer(None, "read.py") == Answer(None)
    assert make_answer({"error": "no", "session": "s"}, "read.py") == Answer(None, "no", "s")
    for wrong in (3, {"answer": "Paris"}, {"text": 3}):
        with pytest.raises(ConfigError, match=r"read\(\) returned .*, expected a text, None, or a mapping"):
            make_answer(wrong, "read.py")
