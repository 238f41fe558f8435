"""Agents that are programs: the runners `agent`, `command` and `acp`, which the room `runners` implements.

Others use: nothing
"""

from pytest_agentbench.pack import Pack

_RUNNER = "pytest_agentbench.runners.agents.runner"
PACK = Pack(
    "agents",
    runners={
        "agent": f"{_RUNNER}:AGENT",
        "command": f"{_RUNNER}:COMMAND",
        "acp": "pytest_agentbench.runners.acp.runner:ACP",
    },
)
