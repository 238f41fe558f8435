"""Write projects whose scripted cases call tools of MCP servers, and find the servers' processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import mcp_server

if TYPE_CHECKING:
    from support.bench import Bench, Finished

SERVER = Path(mcp_server.__file__)


class McpBench:
    """A project with servers that log their starts. Calls are `(wire name, arguments)`."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.path = bench, bench.path
        self.log = bench.path / "starts.log"

    def server(self, name: str, *options: str, log: Path | str | None = None, **fields: Any) -> dict[str, Any]:
        """Return a declaration of the test server; it logs its starts under the name."""
        args = ["-I", SERVER.name, "--name", name, "--log", str(log or self.log), *options]
        return {"command": "python3", "args": args, "cwd": str(SERVER.parent), **fields}

    def servers(self, folder: str = "cases", **declared: dict[str, Any]) -> None:
        self.bench.write(f"{folder}/servers.yaml", {"schema_version": 1, "servers": declared})

    def case(
        self,
        case_id: str,
        *calls: tuple[str, dict[str, Any]],
        servers: Any = None,
        folder: str = "cases",
        **fields: Any,
    ) -> None:
        """Return a case whose scripted model makes the calls, one a turn, and then answers."""
        self.bench.case(case_id, folder=folder, mcp_servers=servers, **fields)
        self.script(case_id, *([call] for call in calls), folder=folder)

    def script(self, case_id: str, *turns: list[tuple[str, dict[str, Any]]], folder: str = "cases") -> None:
        """Return a script of a case: the calls of each turn, and the answer."""
        steps: list[Any] = [
            {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]} for calls in turns
        ]
        replies = [{"steps": [*steps, {"content": "Paris"}]}]
        self.bench.write(f"{folder}/{case_id}/demo.yaml", {"schema_version": 1, "replies": replies})

    def run(self, *options: str, spawn: bool = False, sandbox: Any = "local", **profile: Any) -> Finished:
        self.bench.profile("here", sandbox=sandbox, policy={"max_concurrency": 16}, **profile)
        session = self.bench.spawn if spawn else self.bench.run
        return session("--model=demo", "--agentbench-run-profile=here", *options, "cases")

    def starts(self) -> list[tuple[str, int]]:
        """Return the servers that were started since the last call, each with its pid."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [(words[1], int(words[2])) for words in map(str.split, lines) if words[0] == "start"]

    def names(self) -> list[str]:
        """Return the names of the servers started since the last call."""
        return [name for name, _ in self.starts()]

    def artifact(self, finished: Finished, case_id: str) -> dict[str, Any]:
        row = finished.runs[case_id if "[" in case_id else f"{case_id}[demo]"]
        artifact: dict[str, Any] = json.loads((self.path / "outputs" / row["artifact"]).read_text())
        return artifact

    def results(self, finished: Finished, case_id: str) -> list[tuple[str, bool]]:
        """Return the result of each call of a run, and whether it failed."""
        trace = self.artifact(finished, case_id)["trace"]
        return [(event["content"], event["is_error"]) for event in trace if event["type"] == "tool_result"]


def lives(pid: int) -> bool:
    """Return whether the server with this pid still runs."""
    try:
        return SERVER.name in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
