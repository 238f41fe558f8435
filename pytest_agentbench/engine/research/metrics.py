"""How a research report came about, measured from the run that wrote it (seed 003, `execution_metrics`)."""

from __future__ import annotations

from pytest_agentbench.engine.job import Job
from pytest_agentbench.records import Case, ExecutionMetrics, MessageEvent, RunArtifact, TokenUsage
from pytest_agentbench.research.counting import counted
from pytest_agentbench.runners import STORED_METRICS


def execution_metrics(job: Job, case: Case, artifact: RunArtifact) -> ExecutionMetrics:
    """What the file says of a stored report; else what was measured. What nobody told or measured is None.

    A report that is a prediction was written by a run that nobody saw: only its text can be counted.
    """
    if job.plan.stored is not None:
        return ExecutionMetrics.model_validate(artifact.metadata.get(STORED_METRICS) or {})
    text = counted(artifact.final_output or "")
    of_text = {"sources_used": text.sources, "citation_count": text.citations, "word_count": text.words}
    if job.plan.predictions is not None:
        return ExecutionMetrics(**of_text)
    usage = artifact.usage
    return ExecutionMetrics(
        total_duration_seconds=artifact.duration_seconds,
        token_usage=TokenUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_cost_usd=usage.cost_usd
        ),
        automation_level=None if _was_helped(case, artifact) else 1.0,
        tool_calls_count=len(artifact.tool_calls),
        **of_text,
    )


def _was_helped(case: Case, artifact: RunArtifact) -> bool:
    """Whether anybody may have said more to the agent than the query: a user's turn after its first word."""
    said = [event.role for event in artifact.trace if isinstance(event, MessageEvent) and event.role != "system"]
    first = next((at for at, role in enumerate(said) if role != "user"), len(said))
    return bool(case.turns) or "user" in said[first:]
