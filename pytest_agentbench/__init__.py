"""pytest-agentbench: agent benchmarks are tests. Here is what users import; each name is loaded at first use."""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports

if TYPE_CHECKING:
    from pytest_agentbench.benchmark import Benchmark, BenchmarkWarning, EvaluationResult, create_benchmark
    from pytest_agentbench.checks import CheckContext, Unmet, Verdict, excerpt
    from pytest_agentbench.errors import (
        AgentbenchError,
        ConfigError,
        InfrastructureError,
        JudgeError,
        ProviderError,
        SandboxError,
        UnavailableError,
    )
    from pytest_agentbench.judging import JudgeReply
    from pytest_agentbench.metrics import metric, score
    from pytest_agentbench.models import ChatReply, ToolCall
    from pytest_agentbench.public import Run
    from pytest_agentbench.records import Case, Evaluation, Model, RunArtifact, Usage
    from pytest_agentbench.runners import ReportedCall, RunContext, RunOutput
    from pytest_agentbench.sources import BenchmarkItem
    from pytest_agentbench.tools import SearchResult, Tool, ToolContext, ToolOutput

_HOMES = {
    "benchmark": ("Benchmark", "BenchmarkWarning", "EvaluationResult", "create_benchmark"),
    "checks": ("CheckContext", "Unmet", "Verdict", "excerpt"),
    "errors": (
        "AgentbenchError",
        "ConfigError",
        "InfrastructureError",
        "JudgeError",
        "ProviderError",
        "SandboxError",
        "UnavailableError",
    ),
    "judging": ("JudgeReply",),
    "metrics": ("metric", "score"),
    "models": ("ChatReply", "ToolCall"),
    "public": ("Run",),
    "records": ("Case", "Evaluation", "Model", "RunArtifact", "Usage"),
    "runners": ("ReportedCall", "RunContext", "RunOutput"),
    "sources": ("BenchmarkItem",),
    "tools": ("SearchResult", "Tool", "ToolContext", "ToolOutput"),
}
__getattr__ = lazy_exports(
    __name__, {name: f"pytest_agentbench.{home}" for home, names in _HOMES.items() for name in names}
)

__all__ = [
    "AgentbenchError",
    "Benchmark",
    "BenchmarkItem",
    "BenchmarkWarning",
    "Case",
    "ChatReply",
    "CheckContext",
    "ConfigError",
    "Evaluation",
    "EvaluationResult",
    "InfrastructureError",
    "JudgeError",
    "JudgeReply",
    "Model",
    "ProviderError",
    "ReportedCall",
    "Run",
    "RunArtifact",
    "RunContext",
    "RunOutput",
    "SandboxError",
    "SearchResult",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutput",
    "UnavailableError",
    "Unmet",
    "Usage",
    "Verdict",
    "create_benchmark",
    "excerpt",
    "metric",
    "score",
]
