"""Agents with SDKs of their own in the session's process: side by side by arguments, one at a time by variables."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from sdks.sdks_support import PROGRAMS, SDKS, needs
from sdks.test_sdks_programs import USAGE, usage_of
from support.bench import Bench, check
from support.stored import find_stored

VARIABLE = "AGENTBENCH_TEST_SDKS"
pytestmark = [pytest.mark.full, needs(VARIABLE)]
# LiteLLM's own openai is too old for the plugin, so it is never in its process
AGENTS = [(sdk.name, agent) for sdk in SDKS if sdk.variable == VARIABLE for agent in sdk.agents]
CONFTEST = """
import importlib
import pytest
from task import Task

async def agent(case, context):
    program, name = case.metadata["program"], case.metadata["agent"]
    gateway = context.gateway
    where = () if case.metadata["serial"] else (gateway.anthropic_base_url, gateway.key)
    base, key = where or (None, None)
    task = Task(case.messages[0].content, gateway.model, True, base, key, context.workspace.path)
    return await importlib.import_module(program).AGENTS[name](task)

@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""


@pytest.mark.parametrize("serial", [False, True], ids=["arguments", "variables"])
def test_agents_in_one_process_get_their_own_answers(bench: Bench, serial: bool) -> None:
    bench.write("conftest.py", CONFTEST)
    bench.profile("many", policy={"max_concurrency": 12})
    for program, agent in AGENTS:
        name = f"{program}-{agent}"
        bench.case(
            name,
            runner={"type": "llm_probe", **({"env": "serial"} if serial else {})},
            metadata={"program": f"with_{program}", "agent": agent, "serial": serial},
            deterministic_checks=[
                check("file", kind="file_contains", path="hello.txt", text=name),
                check("answer", kind="regex_match", pattern=f"^Written by {name}.$"),
            ],
        )
        call = {"name": "write_file", "arguments": {"path": "hello.txt", "content": name}}
        steps = [{"tool_calls": [call], "usage": USAGE}, {"content": f"Written by {name}.", "usage": USAGE}]
        bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(PROGRAMS)}
    options = ["-p", "agentbench", "--model=demo", "--agentbench-run-profile=many"]
    command = [SDKS[0].python, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=bench.path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(path.read_text()) for path in find_stored(bench.path / "outputs", "run_1.json")]
    assert len(runs) == len(AGENTS)
    for run in runs:
        assert usage_of(run) == {name: 2 * count for name, count in USAGE.items()}
        assert [way["dialect"] for way in run["provider"]["gateway"]["dialects"]] == [run["case_id"].partition("-")[2]]
