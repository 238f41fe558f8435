"""Agents that are programs: the runners `agent` and `command`, which the room `runners.agents` implements.

Others use: nothing
"""

from pytest_agentbench.pack import Pack

_RUNNER = "pytest_agentbench.runners.agents.runner"
PACK = Pack("agents", runners={"agent": f"{_RUNNER}:AGENT", "command": f"{_RUNNER}:COMMAND"})
