#!/usr/bin/env python3
"""Stand-ins for the programs of an OpenClaw image, for machines without one: `openclaw`, and the `node` that starts it.

`openclaw` reads openclaw.json, asks its model over `baseUrl` with `stream: true`, executes the calls of `write`, `read`
and `exec` in the workspace, keeps its session in OPENCLAW_STATE_DIR, and prints its JSON after log lines, like version
2026.9.6. Sentences in a message make it fail; see FAULTS. `node` does the work of relay.mjs without listening on a
port, which runs of this machine would share: it passes the socket to `openclaw`.

Standard library only: it runs in containers too. `install(folder)` writes both programs there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FAULTS = {
    "crash": "Please crash.",
    "hang": "Please hang.",
    "giving up": "Please give up.",
    "silent": "Please say nothing.",
    "own time limit": "Please run into your own time limit.",
    "other model": "Please ask another model.",
    "link": "Please leave a link.",
}
"""Texts in a message that cause each fault. `other model` asks for OTHER_MODEL."""

OTHER_MODEL = "somebody/elses-model"
VERSION = "OpenClaw 2026.9.6 (stub)"
TAKES_PROMPT = False
"""Whether the stub accepts `systemPromptOverride`, like versions before 2026.9."""

_SOCKET_VARIABLE = "STUB_OPENCLAW_SOCKET"
_MOST_STEPS = 20
_AGENT_KEYS = {"id", "model", "name", "workspace", "tools", "identity", "default"}


def install(folder: Path, *, takes_prompt: bool = False) -> tuple[Path, Path]:
    """Write the programs `openclaw` and `node` into the folder. Return their paths."""
    text = Path(__file__).read_text(encoding="utf-8")
    if takes_prompt:
        text = text.replace("\nTAKES_PROMPT = False\n", "\nTAKES_PROMPT = True\n")
    programs = folder / "openclaw", folder / "node"
    for program in programs:
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    return programs


def node(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print("v24.16.0")
        return 0
    relay, port, socket_path, _, *command = arguments
    assert Path(relay).name == "relay.mjs"
    assert int(port)
    done = subprocess.run(command, env={**os.environ, _SOCKET_VARIABLE: socket_path}, stdout=subprocess.PIPE)
    sys.stdout.buffer.write(b"\n" + done.stdout)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def openclaw(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    config = json.loads(Path(os.environ["OPENCLAW_CONFIG_PATH"]).read_text(encoding="utf-8"))
    if arguments == ["config", "validate", "--json"]:
        return _validate(config)
    return _agent(config, _parsed(arguments))


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("openclaw")
    command = parser.add_subparsers(required=True).add_parser("agent", allow_abbrev=False)
    for flag in ("--local", "--json"):
        command.add_argument(flag, action="store_true", required=True)
    for option in ("--agent", "--session-id"):
        command.add_argument(option, required=True)
    command.add_argument("--timeout", type=int, required=True)
    text = command.add_mutually_exclusive_group(required=True)
    text.add_argument("--message")
    text.add_argument("--message-file", type=Path)
    return parser.parse_args(arguments)


def _validate(config: dict[str, Any]) -> int:
    path, issues = os.environ["OPENCLAW_CONFIG_PATH"], _issues(config)
    if not issues:
        print(json.dumps({"valid": True, "path": path, "warnings": []}))
        return 0
    error = {"type": "cli_error", "message": f"OpenClaw config is invalid: {path}"}
    print(json.dumps({"ok": False, "error": error, "valid": False, "path": path, "issues": issues}, indent=2))
    return 1


def _issues(config: dict[str, Any]) -> list[dict[str, str]]:
    found = []
    if isinstance(config["agents"]["defaults"].get("sandbox"), str):
        found.append({"path": "agents.defaults.sandbox", "message": "Invalid input: expected object, received string"})
    if "unknownSetting" in config["agents"]["defaults"]:
        found.append({"path": "agents.defaults", "message": 'Unrecognized key: "unknownSetting"'})
    known = _AGENT_KEYS | ({"systemPromptOverride"} if TAKES_PROMPT else set())
    return found + [
        {"path": f"agents.entries.{agent['id']}", "message": f'Unrecognized key: "{key}"'}
        for agent in config["agents"]["list"]
        for key in agent.keys() - known
    ]


def _agent(config: dict[str, Any], asked: argparse.Namespace) -> int:
    text = asked.message if asked.message is not None else asked.message_file.read_text(encoding="utf-8")
    log("[config] warnings: agents.entries: Moved agents.list to keyed agents.entries. {not json")
    log(f"[agent] time limit {asked.timeout} s")
    if FAULTS["crash"] in text:
        log("[openclaw] Reason: Something broke.")
        return 3
    if FAULTS["hang"] in text:
        signal.pause()
    if FAULTS["giving up"] in text:
        return _say({"ok": False, "error": {"type": "cli_error", "message": "It was too hard."}}, code=1)
    if FAULTS["silent"] in text:
        log("[openclaw] nothing to say")
        return 0
    if FAULTS["link"] in text:
        os.symlink("/etc/passwd", "link.md")
    if FAULTS["own time limit"] in text:
        payload = {"text": "Request timed out.", "isError": True}
        return _say({"payloads": [payload], "meta": {"timeoutPhase": "provider"}})
    session = Path(os.environ["OPENCLAW_STATE_DIR"], "sessions", f"{asked.session_id}.json")
    session.parent.mkdir(parents=True, exist_ok=True)
    Path(os.environ["HOME"]).mkdir(parents=True, exist_ok=True)
    messages = json.loads(session.read_text(encoding="utf-8")) if session.exists() else [_system(config, asked.agent)]
    messages.append({"role": "user", "content": f"[{_some_time()}] {text}"})
    model = Endpoint(config, OTHER_MODEL if FAULTS["other model"] in text else None)
    try:
        answer, tools = _work(model, messages)
    except RefusedError as error:
        log(f"[model-fallback/decision] decision=candidate_failed detail={error}")
        return _say({"ok": False, "error": {"type": "cli_error", "message": "LLM request failed."}}, code=1)
    session.write_text(json.dumps(messages), encoding="utf-8")
    agent = {
        "sessionId": asked.session_id,
        "usage": model.usage,
        "terminalReceipt": {"successfulToolNames": sorted(set(tools))},
    }
    summary = {"calls": len(tools), "tools": sorted(set(tools)), "failures": 0}
    meta = {"durationMs": 5, "agentMeta": agent, "aborted": False, "stopReason": "stop", "toolSummary": summary}
    return _say({"payloads": [{"text": answer, "mediaUrl": None}], "meta": meta})


def _system(config: dict[str, Any], agent_id: str) -> dict[str, Any]:
    agent = next(each for each in config["agents"]["list"] if each["id"] == agent_id)
    head = agent.get("systemPromptOverride") or "You are a personal assistant."
    files = (Path(name) for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "USER.md"))
    shown = [f"## {file}\n{file.read_text(encoding='utf-8')}" for file in files if file.is_file()]
    return {"role": "system", "content": "\n\n".join([head, *shown])}


def _work(model: Endpoint, messages: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """Ask and execute until the model answers without a call. Return the answer and the names of the used tools."""
    used: list[str] = []
    for _ in range(_MOST_STEPS):
        message = model.ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"] or "", used
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": _execute(name, arguments)})
            used.append(name)
    return "Too many steps.", used


def _execute(name: str, arguments: dict[str, Any]) -> str:
    if name == "write":
        target = Path(arguments["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(arguments["content"], encoding="utf-8")
        return f"Successfully wrote {len(arguments['content'])} bytes to {target}"
    if name == "read":
        return Path(arguments["path"]).read_text(encoding="utf-8")
    done = subprocess.run(["sh", "-c", arguments["command"]], capture_output=True, text=True)
    return done.stdout + done.stderr


TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("write", "read", "exec")
]


def _some_time() -> str:
    """Return the time in the form of OpenClaw; another one at each call, as in sessions that are days apart."""
    return time.strftime("%a %Y-%m-%d %H:%M UTC", time.gmtime(random.randrange(2**31)))


class RefusedError(Exception):
    """The endpoint answered with another status than 200."""


class Endpoint:
    """The model of openclaw.json, or `model` if given."""

    def __init__(self, config: dict[str, Any], model: str | None) -> None:
        primary = config["agents"]["defaults"]["model"]["primary"]
        name, _, self._model = primary.partition("/")
        provider = config["models"]["providers"][name]
        assert provider["api"] == "openai-completions"
        assert self._model in [each["id"] for each in provider["models"]]
        self._model = model or self._model
        self._url, self._key = provider["baseUrl"], provider["apiKey"]
        self._params = config["agents"]["defaults"]["models"][primary].get("params", {})
        self.usage = {"input": 0, "output": 0, "total": 0}

    def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the assistant message of a streamed reply."""
        body = {
            "model": self._model,
            "messages": messages,
            "tools": TOOLS,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens": self._params.get("max_tokens", 4096),
        }
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        connection = self._connection()
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise RefusedError(f"{response.status} {response.read().decode('utf-8', 'replace')}")
            return self._read(response)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        socket_path = os.environ.get(_SOCKET_VARIABLE)
        host = self._url.removeprefix("http://").partition("/")[0]
        connection = http.client.HTTPConnection(host)
        if socket_path is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            folder = os.open(os.path.dirname(socket_path), os.O_PATH)  # the kernel takes 107 bytes of a path
            connection.sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(socket_path)}")
            os.close(folder)
        return connection

    def _read(self, response: http.client.HTTPResponse) -> dict[str, Any]:
        content, calls = "", dict[int, dict[str, Any]]()
        for line in response:
            data = line.decode("utf-8").strip().removeprefix("data:").strip()
            if not line.startswith(b"data:") or data == "[DONE]":
                continue
            chunk = json.loads(data)
            if chunk.get("error"):
                raise RefusedError(str(chunk["error"]))
            self._count(chunk.get("usage"))
            for choice in chunk.get("choices", []):
                content += choice["delta"].get("content") or ""
                for piece in choice["delta"].get("tool_calls") or []:
                    _add(calls, piece)
        message: dict[str, Any] = {"role": "assistant", "content": content or None}
        return {**message, "tool_calls": [calls[index] for index in sorted(calls)]} if calls else message

    def _count(self, usage: dict[str, Any] | None) -> None:
        for name, ours in (("prompt_tokens", "input"), ("completion_tokens", "output"), ("total_tokens", "total")):
            self.usage[ours] += (usage or {}).get(name, 0)


def _add(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    function = piece.get("function", {})
    call = calls.setdefault(
        piece["index"], {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _say(reply: dict[str, Any], code: int = 0) -> int:
    print(json.dumps(reply, indent=2))
    return code


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    program = {"node": node, "openclaw": openclaw}[Path(sys.argv[0]).name]
    sys.exit(program(sys.argv[1:]))
