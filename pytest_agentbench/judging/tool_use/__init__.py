"""Judging of MCP tasks (seed 004, 5.2): six dimensions from 1 to 10, five iterations with shuffled rubrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.judging.aggregation import Method
from pytest_agentbench.judging.assessment import Assessment, sample_sizes, sampling_seed
from pytest_agentbench.judging.tool_use.ablation import (
    Completions,
    Pipeline,
    ask_verdict,
    cv_over_judges,
    cv_over_shuffles,
    verdict_key,
)
from pytest_agentbench.judging.tool_use.contract import TOOL_USE_FORMAT, parse_tool_use
from pytest_agentbench.judging.tool_use.evidence import tools_shown
from pytest_agentbench.judging.tool_use.prompt import PROMPT_VERSION, tool_use_messages
from pytest_agentbench.judging.tool_use.scores import aggregate_tool_use, cv_percent, task_completion
from pytest_agentbench.records import Case, RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config import EvaluationProfile, JudgeRunConfig

__all__ = [
    "TOOL_USE_REPETITIONS",
    "Completions",
    "Pipeline",
    "ask_verdict",
    "cv_over_judges",
    "cv_over_shuffles",
    "cv_percent",
    "task_completion",
    "tool_use_assessment",
    "tool_use_identity",
    "tool_use_messages",
    "tools_shown",
    "verdict_key",
]

TOOL_USE_REPETITIONS = 5
"""Iterations of a judge run that does not say how many it wants."""


def tool_use_assessment(
    case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
) -> Assessment:
    """How the run of an MCP task is judged; secrets are removed by `redact` from what is sent."""
    return Assessment(
        messages=tool_use_messages(case, artifact, profile, redact),
        response_format=TOOL_USE_FORMAT,
        parse=parse_tool_use,
        aggregate=partial(
            aggregate_tool_use,
            method=_method(profile),
            pass_threshold=profile.aggregation.pass_threshold,
            sample_sizes=sample_sizes(profile),
            seed=sampling_seed(artifact),
        ),
        repetitions=_repetitions,
        shuffled=profile.mcp_tasks.shuffle != "none",
    )


def tool_use_identity(profile: EvaluationProfile) -> dict[str, Any]:
    """What can change a verdict on an MCP task beside the task and what the profile says: the prompt, our defaults."""
    return {
        "prompt": PROMPT_VERSION,
        "method": _method(profile),
        "repetitions": {run.judge_run_id: _repetitions(run) for run in profile.judge_runs},
    }


def _method(profile: EvaluationProfile) -> Method:
    return profile.aggregation.method if "method" in profile.aggregation.model_fields_set else "mean"


def _repetitions(run: JudgeRunConfig) -> int:
    return run.repetitions if "repetitions" in run.model_fields_set else TOOL_USE_REPETITIONS
