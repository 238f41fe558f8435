"""The engine: runs jobs ahead of pytest, within limits and budget, and splits them over xdist's workers."""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports

if TYPE_CHECKING:
    from pytest_agentbench.engine.agent_code import CodeReader
    from pytest_agentbench.engine.asking import RunLimits, WorkerThrottles
    from pytest_agentbench.engine.budget import Budget, Part, Spending, over_budget, spending
    from pytest_agentbench.engine.driver import (
        AHEAD,
        FILE_ID,
        JOB,
        RESULT,
        RUNNER_FIXTURE,
        RunAhead,
        overrides_runner,
        true_nodeid,
    )
    from pytest_agentbench.engine.execution import execute
    from pytest_agentbench.engine.forecast import DryRun, Expected, Forecast
    from pytest_agentbench.engine.gateways import Gateways
    from pytest_agentbench.engine.identities import Identities
    from pytest_agentbench.engine.job import CHAT_JUDGE, Given, Job, Plan, Result, judge_of
    from pytest_agentbench.engine.judged import judged_by, rubric_hash
    from pytest_agentbench.engine.lines import steady_socket
    from pytest_agentbench.engine.logs import RunLogHandler, filter_capture_handlers
    from pytest_agentbench.engine.lookahead import LookAhead, Work
    from pytest_agentbench.engine.origins import Origins
    from pytest_agentbench.engine.parcels import Parcels
    from pytest_agentbench.engine.registry import Registry, build_registry
    from pytest_agentbench.engine.servers import SERVERS_FIXTURE
    from pytest_agentbench.engine.services import CaseRunner, Services, agent_name
    from pytest_agentbench.engine.sharding import Sharding
    from pytest_agentbench.engine.shares import CHANNEL, ControllerLink
    from pytest_agentbench.engine.signals import Signals
    from pytest_agentbench.engine.streams import Streams

_HERE = "pytest_agentbench.engine"
_HOMES = {
    "asking": ("RunLimits", "WorkerThrottles"),
    "budget": ("Budget", "Part", "Spending", "over_budget", "spending"),
    "driver": ("AHEAD", "FILE_ID", "JOB", "RESULT", "RUNNER_FIXTURE", "RunAhead", "overrides_runner", "true_nodeid"),
    "execution": ("execute",),
    "forecast": ("DryRun", "Expected", "Forecast"),
    "agent_code": ("CodeReader",),
    "identities": ("Identities",),
    "gateways": ("Gateways",),
    "job": ("CHAT_JUDGE", "Given", "Job", "Plan", "Result", "judge_of"),
    "judged": ("judged_by", "rubric_hash"),
    "logs": ("RunLogHandler", "filter_capture_handlers"),
    "lines": ("steady_socket",),
    "lookahead": ("LookAhead", "Work"),
    "registry": ("Registry", "build_registry"),
    "origins": ("Origins",),
    "parcels": ("Parcels",),
    "servers": ("SERVERS_FIXTURE",),
    "services": ("CaseRunner", "Services", "agent_name"),
    "sharding": ("Sharding",),
    "shares": ("CHANNEL", "ControllerLink"),
    "signals": ("Signals",),
    "streams": ("Streams",),
}
__getattr__ = lazy_exports(_HERE, {name: f"{_HERE}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "AHEAD",
    "CHANNEL",
    "CHAT_JUDGE",
    "FILE_ID",
    "JOB",
    "RESULT",
    "RUNNER_FIXTURE",
    "SERVERS_FIXTURE",
    "Budget",
    "CaseRunner",
    "CodeReader",
    "ControllerLink",
    "DryRun",
    "Expected",
    "Forecast",
    "Gateways",
    "Given",
    "Identities",
    "Job",
    "LookAhead",
    "Origins",
    "Parcels",
    "Part",
    "Plan",
    "Registry",
    "Result",
    "RunAhead",
    "RunLimits",
    "RunLogHandler",
    "Services",
    "Sharding",
    "Signals",
    "Spending",
    "Streams",
    "Work",
    "WorkerThrottles",
    "agent_name",
    "build_registry",
    "execute",
    "filter_capture_handlers",
    "judge_of",
    "judged_by",
    "over_budget",
    "overrides_runner",
    "rubric_hash",
    "spending",
    "steady_socket",
    "true_nodeid",
]
