"""What the runner `acp` sends, against the schema of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from support.bench import Bench
from support.mcp_projects import McpBench

SCHEMA = json.loads(Path(__file__).with_name("schema").joinpath("schema.json").read_text(encoding="utf-8"))
AGENT = Path(__file__).parents[2] / "support" / "stub_acp_agent.py"
REQUESTS = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/set_mode": "SetSessionModeRequest",
    "session/set_config_option": "SetSessionConfigOptionRequest",
    "session/prompt": "PromptRequest",
    "session/cancel": "CancelNotification",
}
REPLIES = {
    "session/request_permission": "RequestPermissionResponse",
    "fs/read_text_file": "ReadTextFileResponse",
    "fs/write_text_file": "WriteTextFileResponse",
    "terminal/create": "CreateTerminalResponse",
    "terminal/output": "TerminalOutputResponse",
    "terminal/wait_for_exit": "WaitForTerminalExitResponse",
    "terminal/kill": "KillTerminalResponse",
    "terminal/release": "ReleaseTerminalResponse",
}


@pytest.mark.slow
def test_all_messages_follow_the_schema(bench: Bench) -> None:
    project = McpBench(bench)
    project.servers(Birds=project.server("birds"))
    log = bench.path / "log.jsonl"
    common = {"type": "acp", "sandbox": "local", "env": {"STUB_LOG": str(log)}, "auth": "key", "timeout_seconds": 30}
    faults = {
        "files": {"client": {"fs": True, "terminal": True}, "mode": {"allow": "free"}},
        "mcp http": {"mode": {"config": "mode", "allow": "free"}},
        "mcp stdio": {},
        "silent": {"timeout_seconds": 2},
        "": {"permissions": "deny"},
    }
    for number, (fault, fields) in enumerate(faults.items()):
        command = ["python3", "agent.py", *([fault] if fault else [])]
        bench.case(
            f"case-{number}",
            runner={**common, "command": command, **fields},
            input={"turns": [{"role": "user", "content": "Go."}]},
            workspace="ws",
            mcp_servers=["Birds"],
        )
        bench.write(f"cases/case-{number}/ws/agent.py", AGENT.read_text(encoding="utf-8"))
        call = {"name": "sh", "arguments": {"command": "true"}}
        steps = [{"tool_calls": [call]}, {"content": "Paris"}]
        bench.write(f"cases/case-{number}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    project.run()
    seen = set()
    for line in log.read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        method = message["method"]
        seen.add(method)
        assert message["jsonrpc"] == "2.0"
        if method in REQUESTS:
            check(REQUESTS[method], message["params"])
        elif "result" in message:
            check(REPLIES[method], message["result"])
        else:
            assert message["error"].keys() == {"code", "message"}
    assert seen == REQUESTS.keys() | REPLIES.keys()


def check(name: str, value: object) -> None:
    jsonschema.validate(value, {**SCHEMA, "$ref": f"#/$defs/{name}"}, jsonschema.Draft202012Validator)
