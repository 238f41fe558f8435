"""Run `agentbench watch` as a process, and send it requests that no browser would send."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.reports.rows import run_row

BEGUN: dict[str, Any] = {
    "started_at": "2026-11-22T10:00:00+00:00",
    "command": ["cases"],
    "versions": {},
    "profiles": {},
    "warnings": [],
}
"""The facts of a session that has started."""
SPENT = {"run": 0.0, "judge": 0.0}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Watching:
    """The address of the server, and the token for labels."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str = "/data.json", method: str = "GET", body: bytes = b"", **headers: str) -> Reply:
        """Send a request for the path, unchanged. `Host` is a browser's, unless given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            sent: Mapping[str, str] = {"Host": f"127.0.0.1:{self.port}", **headers}
            for name, value in sent.items():
                connection.putheader(name.replace("_", "-"), value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @property
    def live(self) -> dict[str, Any]:
        """Return the session's progress as the page gets it."""
        return self.ask().json["live"]


@contextmanager
def watching(output: Path, port: int = 0) -> Iterator[Watching]:
    """Yield the command on this port, or a free one; stop it by Ctrl-C at the end. It runs in the output's parent."""
    command = [sys.executable, "-m", "pytest_agentbench.cli", "watch", str(output), "--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=output.parent
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:([0-9]+)/\?token=(\S+)", line)
            assert found is not None, line + process.communicate(timeout=10)[1]
            yield Watching(int(found[1]), found[2])
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        assert "Traceback" not in errors, errors


def row(
    case_id: str,
    outcome: str = "passed",
    message: str | None = None,
    *,
    reused: bool = False,
    artifact: str | None = None,
) -> dict[str, Any]:
    """Return a row of report.json of the model `gpt`."""
    return run_row(
        f"cases/t.yaml::{case_id}[gpt]",
        Case(case_id=case_id, title="T", path=Path("t.yaml"), runner=RunnerSpec(type="llm_probe")),
        Model(model_id="gpt", requested_model="gpt"),
        1,
        None,
        None,
        duration_seconds=1.0,
        reused=reused,
        evaluation_reused=reused,
        artifact_path=artifact,
        outcome=outcome,
        message=message,
    )
