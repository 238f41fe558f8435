"""The engine: runs jobs ahead of pytest, within limits and budget, and splits them over xdist's workers."""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports

if TYPE_CHECKING:
    from pytest_agentbench.engine.budget import Budget
    from pytest_agentbench.engine.driver import AHEAD, JOB, RESULT, RUNNER_FIXTURE, RunAhead, overrides_runner
    from pytest_agentbench.engine.execution import execute
    from pytest_agentbench.engine.job import CHAT_JUDGE, Job, Plan, Result, judge_of
    from pytest_agentbench.engine.logs import RunLogHandler, filter_capture_handlers
    from pytest_agentbench.engine.lookahead import LookAhead
    from pytest_agentbench.engine.registry import Registry, build_registry
    from pytest_agentbench.engine.services import CaseRunner, Services, agent_name
    from pytest_agentbench.engine.shares import CHANNEL, ControllerLink

_HERE = "pytest_agentbench.engine"
_HOMES = {
    "budget": ("Budget",),
    "driver": ("AHEAD", "JOB", "RESULT", "RUNNER_FIXTURE", "RunAhead", "overrides_runner"),
    "execution": ("execute",),
    "job": ("CHAT_JUDGE", "Job", "Plan", "Result", "judge_of"),
    "logs": ("RunLogHandler", "filter_capture_handlers"),
    "lookahead": ("LookAhead",),
    "registry": ("Registry", "build_registry"),
    "services": ("CaseRunner", "Services", "agent_name"),
    "shares": ("CHANNEL", "ControllerLink"),
}
__getattr__ = lazy_exports(_HERE, {name: f"{_HERE}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "AHEAD",
    "CHANNEL",
    "CHAT_JUDGE",
    "JOB",
    "RESULT",
    "RUNNER_FIXTURE",
    "Budget",
    "CaseRunner",
    "ControllerLink",
    "Job",
    "LookAhead",
    "Plan",
    "Registry",
    "Result",
    "RunAhead",
    "RunLogHandler",
    "Services",
    "agent_name",
    "build_registry",
    "execute",
    "filter_capture_handlers",
    "judge_of",
    "overrides_runner",
]
