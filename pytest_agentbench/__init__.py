"""pytest-agentbench: agent benchmarks are tests. Here is what users import; each name is loaded at first use."""

from typing import TYPE_CHECKING

from pytest_agentbench.errors import lazy_exports

if TYPE_CHECKING:
    from pytest_agentbench.benchmark.benchmark import Benchmark, BenchmarkWarning, create_benchmark
    from pytest_agentbench.benchmark.results import EvaluationResult
    from pytest_agentbench.checks.base import CheckContext, Unmet, Verdict, excerpt
    from pytest_agentbench.errors import (
        AgentbenchError,
        ConfigError,
        InfrastructureError,
        JudgeError,
        ProviderError,
        SandboxError,
        UnavailableError,
    )
    from pytest_agentbench.judging.asking import JudgeReply
    from pytest_agentbench.metrics.registry import metric
    from pytest_agentbench.metrics.scoring import score
    from pytest_agentbench.models.replies import ChatReply, ToolCall
    from pytest_agentbench.public import Run
    from pytest_agentbench.records.case import Case, Model
    from pytest_agentbench.records.evaluation import Evaluation
    from pytest_agentbench.records.run import RunArtifact, Usage
    from pytest_agentbench.runners.base import ReportedCall, RunContext, RunOutput
    from pytest_agentbench.sources.items import BenchmarkItem
    from pytest_agentbench.tools.base import SearchResult, Tool, ToolContext, ToolOutput

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
