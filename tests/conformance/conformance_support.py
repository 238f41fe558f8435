"""Sessions on the reference's own files, on models that `agentbench serve` scripts on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[3] / "shared" / "data"
CONFIG = DATA / "config"


@contextmanager
def served(scripts: Path, replies: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A base URL at which these replies are given, each a script of its own below the folder `scripts`."""
    for number, reply in enumerate(replies):
        folder = scripts / str(number)
        folder.mkdir()
        (folder / "demo.yaml").write_text(yaml.safe_dump({"schema_version": 1, "replies": [reply]}))
    command = [sys.executable, "-m", "pytest_agentbench.cli", "serve", str(scripts), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        assert server.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/v1", server.stdout.readline())
        assert match is not None
        yield match[0]
        server.terminate()


def asked(text: str) -> str:
    """A pattern of messages in which the text is found, but for those that quote it to a judge."""
    return rf"\A(?!.*<<<DATA)(?s:.*){re.escape(text)}"


def run(endpoint: str, root: Path, output: Path, *args: str) -> dict[str, Any]:
    """The report.json of a session below `root`."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environ |= {"OPENAI_BASE_URL": endpoint, "OPENAI_API_KEY": "no-key-needed"}
    command = [sys.executable, "-m", "pytest", f"--rootdir={root}", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, *args, f"--agentbench-output={output}"], env=environ, cwd=root, capture_output=True, text=True
    )
    assert (output / "report.json").is_file(), done.stdout + done.stderr
    report: dict[str, Any] = json.loads((output / "report.json").read_text())
    return report


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {row["case_id"]: row["outcome"] for row in report["runs"]}
