"""`agentbench doctor --model X --live` against endpoints on loopback, each with its own ways."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.cli import main
from pytest_agentbench.config.base import load
from pytest_agentbench.config.profiles import ModelsFile

Answer = tuple[int, Any]
Way = Callable[[dict[str, Any]], Answer]


def said(content: str | None, *names: str, finish: str | None = None, **usage: int) -> Answer:
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": '{"city": "Paris"}'}}
        for at, name in enumerate(names)
    ]
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    finish = finish or ("tool_calls" if calls else "stop")
    tokens = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return 200, {"id": "r", "model": "small-1", "choices": choices, "usage": tokens}


def refused(status: int, message: str, **more: Any) -> Answer:
    return status, {"error": {"message": message, **more}}


def easy(request: dict[str, Any]) -> Answer:
    """An endpoint that takes all of it."""
    if request["model"] != "small":
        return refused(404, f"The model {request['model']} does not exist", code="model_not_found")
    most = request.get("max_tokens") or request.get("max_completion_tokens")
    if most > 100_000:
        return refused(400, "max_tokens is too large: at most 16384", code="invalid_request_error")
    if request.get("stream"):
        chunk = {"choices": [{"index": 0, "delta": {"content": "4"}}]}
        end = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
        return 200, "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, end)) + "data: [DONE]\n\n"
    if most == 8:
        return said("1 2 3", finish="length", completion_tokens=8, total_tokens=18)
    if "response_format" in request:
        return said('{"answer": 4}')
    asked_tools = [tool["function"]["name"] for tool in request.get("tools", ())]
    if asked_tools and request["messages"][-1]["role"] == "user":
        return said(None, *asked_tools)
    return said("4")


def like_reasoning_models(request: dict[str, Any]) -> Answer:
    if "max_tokens" in request:
        return refused(
            400,
            "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if request.get("response_format", {}).get("type") == "json_schema":
        return refused(400, "This response_format type is unavailable now")
    return easy(request)


def in_messages(request: dict[str, Any]) -> Answer:
    """The same endpoint, asked in Messages."""
    assert "seed" not in request
    tools = [{"function": {"name": tool["name"]}} for tool in request.get("tools", ())]
    last = request["messages"][-1]
    if isinstance(last["content"], list) and last["content"][0]["type"] == "tool_result":
        last = {"role": "tool"}
    chat: dict[str, Any] = {**request, "stream": False, "tools": tools, "messages": [last]}
    if "output_config" in request:
        chat["response_format"] = request["output_config"]["format"]
    status, document = easy(chat)
    if status != 200:
        return status, {"type": "error", "error": {"type": "invalid_request_error", **document["error"]}}
    message = document["choices"][0]["message"]
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {"city": "Paris"}}
        for call in message.get("tool_calls", ())
    ]
    reason = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
    answer = {
        "id": "m",
        "type": "message",
        "model": "small-1",
        "content": [*([{"type": "text", "text": message["content"]}] if message["content"] else ()), *calls],
        "stop_reason": reason[document["choices"][0]["finish_reason"]],
        "usage": {"input_tokens": 10, "output_tokens": document["usage"]["completion_tokens"]},
    }
    if request.get("stream"):
        delta = {"type": "text_delta", "text": message["content"]}
        events = [
            {"type": "message_start", "message": {**answer, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": answer["usage"]},
            {"type": "message_stop"},
        ]
        return 200, "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return 200, answer


@contextmanager
def serving(way: Way) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request)
            status, document = way(request)
            data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if isinstance(document, str) else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Answer nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", requests
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def declare(project: Path, base_url: str, **more: Any) -> Path:
    entry = {"model_id": "mine", "requested_model": "small", "base_url": base_url, "api_key_env": "none", **more}
    path = project / "models.yaml"
    path.write_text("# ours\n" + yaml.safe_dump({"schema_version": 1, "models": [entry]}, sort_keys=False))
    return path


def probe(*options: str) -> int:
    return main(["doctor", "--model", "mine", "--live", *options])


def test_twelve_probes_of_an_endpoint_that_takes_all_of_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(easy) as (base_url, requests):
        declare(project, base_url, prices={"input_per_1m": 1, "output_per_1m": 2})
        assert probe("--yes") == 0
    assert len(requests) <= 12
    assert all(request.get("max_tokens") in (8, 10_000_000) or request["max_tokens"] <= 64 for request in requests)
    out, err = capsys.readouterr()
    assert "small at 127.0.0.1" in err
    assert "about 0.0016 USD" in err
    lines = [line.split(":")[0].split(maxsplit=2) for line in out.splitlines() if line.startswith("  ")]
    assert [line[1] for line in lines] == [str(number) for number in range(1, 13)]
    assert {line[1] for line in lines if line[0] != "ok"} == {"2"}  # no parameters, nothing to ask
    assert "12 requests, 0.000186 USD" in out


def test_an_endpoint_is_probed_in_the_protocol_of_the_entry(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(in_messages) as (base_url, requests):
        declare(project, base_url, api="messages", prices={"input_per_1m": 1, "output_per_1m": 2})
        assert probe("--yes") == 0
    assert len(requests) <= 12
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    told = {int(line[1]): (line[0], line[2]) for line in lines}
    assert {number for number, (word, _) in told.items() if word != "ok"} == {2, 10}
    assert "by max_tokens, finish_reason length" in told[3][1]
    assert "with usage, the first token after" in told[9][1]
    assert "`api: messages` has no seed" in told[10][1]


def test_few_tokens_are_as_few_as_the_protocol_takes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def way(request: dict[str, Any]) -> Answer:
        used = {"input_tokens": 10, "output_tokens": request["max_output_tokens"] + 1, "total_tokens": 99}
        said = {"type": "message", "content": [{"type": "output_text", "text": "4"}]}
        return 200, {"id": "r", "status": "completed", "output": [said], "usage": used}

    with serving(way) as (base_url, requests):
        declare(project, base_url, api="responses")
        probe("--yes")
    assert 16 in {request["max_output_tokens"] for request in requests}
    assert min(request["max_output_tokens"] for request in requests) == 16
    assert "max_output_tokens has no effect: 17 tokens came" in capsys.readouterr().out


def test_settings_that_probes_find_are_printed_and_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(like_reasoning_models) as (base_url, requests):
        path = declare(project, base_url)
        assert probe("--yes", "--json", "--write") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["requests"] == len(requests) == 12
    assert document["settings"] == {"dialect_overrides": {"limit": "max_completion_tokens", "json_schema": False}}
    assert document["probes"][-1]["said"].startswith("not asked")
    text = path.read_text()
    assert text.startswith("# ours\n")
    [entry] = load(path, ModelsFile).models
    assert entry.dialect_overrides is not None
    assert (entry.dialect_overrides.limit, entry.dialect_overrides.json_schema) == ("max_completion_tokens", False)
    assert (entry.requested_model, entry.base_url) == ("small", base_url)


def test_a_failed_probe_is_a_no(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def careless(request: dict[str, Any]) -> Answer:
        if request.get("stream"):
            return said("4")
        return said("four", completion_tokens=60, total_tokens=70)  # whatever it is asked

    with serving(careless) as (base_url, _):
        declare(project, base_url)
        assert probe("--yes", "--json") == 0
    probes = {each["number"]: each for each in json.loads(capsys.readouterr().out)["probes"]}
    assert {number for number, each in probes.items() if each["works"] is False} == {3, 4, 7, 8, 9, 12}
    assert probes[3]["write"] == {"dialect_overrides": {"limit": "max_completion_tokens"}}
    assert probes[5]["said"] == "no call came before"
    assert "small-1 answers to any name" in probes[12]["said"]


def test_a_key_that_is_refused_ends_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "zebra-crossing-4711")
    with serving(lambda request: refused(401, "Incorrect API key provided: zebra-crossing-4711")) as (
        base_url,
        requests,
    ):
        declare(project, base_url, api_key_env="MY_KEY")
        assert probe("--yes") == 1
    assert len(requests) == 1
    out, err = capsys.readouterr()
    assert "no   1 an answer: " in out
    assert "MY_KEY" in out
    assert "zebra" not in out + err


def test_nothing_is_sent_without_leave(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(easy) as (base_url, requests):
        declare(project, base_url)
        assert probe() == 1
        assert main(["doctor", "--model", "mine"]) == 1
    assert requests == []
    assert "add --yes" in capsys.readouterr().err


def test_the_profiles_parameters_are_tried(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "run_profiles").mkdir()
    settings = {"temperature": 0.3, "top_k": 5, "max_tokens": 4000}
    profile = {"schema_version": 1, "run_profile_id": "p", "title": "P", "runner_defaults": settings}
    (project / "run_profiles" / "p.yaml").write_text(yaml.safe_dump(profile))
    with serving(easy) as (base_url, requests):
        declare(project, base_url)
        assert probe("--yes", "--profile", "p") == 0
    assert (requests[1]["temperature"], requests[1]["top_k"], requests[1]["max_tokens"]) == (0.3, 5, 64)
    assert "takes temperature, max_tokens, top_k" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "problem"),
    [({"scripted": True}, "it is scripted"), ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set")],
)
def test_a_model_that_cannot_be_probed_is_an_error(
    project: Path, capsys: pytest.CaptureFixture[str], entry: dict[str, Any], problem: str
) -> None:
    declare(project, "http://127.0.0.1:9/v1", **entry)
    assert probe("--yes") == 1
    assert problem in capsys.readouterr().err


def test_settings_are_written_into_entries_in_braces_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "models.yaml"
    with serving(like_reasoning_models) as (base_url, _):
        entry = f"{{model_id: mine, requested_model: small, base_url: '{base_url}', api_key_env: none}}"
        path.write_text(f"schema_version: 1\nmodels:\n- {entry}  # the small one\n")
        assert probe("--yes", "--write") == 0
    assert "\nwritten into the entry 'mine' of models.yaml:\n  dialect_overrides: {" in capsys.readouterr().out
    assert path.read_text().endswith("  # the small one\n")
    [entry_read] = load(path, ModelsFile).models
    assert entry_read.dialect_overrides is not None
    assert entry_read.dialect_overrides.limit == "max_completion_tokens"


def test_with_parameters_the_last_probes_come_before_a_second_answer(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(easy) as (base_url, requests):
        declare(project, base_url, parameters={"temperature": 0.3})
        assert probe("--yes", "--json") == 0
    assert len(requests) == 12
    probes = {each["number"]: each for each in json.loads(capsys.readouterr().out)["probes"]}
    assert all(each["works"] for each in probes.values()), probes
    assert "not asked twice" in probes[10]["said"]
    assert re.search(r"with usage, the first token after \d", probes[9]["said"])


def test_a_stream_that_breaks_off_is_a_no(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def breaks_off(request: dict[str, Any]) -> Answer:
        return (200, 'data: {"choices": [{"index": 0, ') if request.get("stream") else easy(request)

    with serving(breaks_off) as (base_url, _):
        declare(project, base_url.replace("127.0.0.1", "me:secret@127.0.0.1"))
        assert probe("--yes", "--json") == 0
    out, err = capsys.readouterr()
    assert "secret" not in out + err
    [stream] = [each for each in json.loads(out)["probes"] if each["number"] == 9]
    assert stream["works"] is False
