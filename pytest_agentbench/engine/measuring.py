"""The metrics of a run, all at once: those that ask a model wait together, and what takes long stalls no other run."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.taping import paid
from pytest_agentbench.engine.verdict import is_judged, metrics_of
from pytest_agentbench.metrics import (
    MetricContext,
    asks_model,
    measure,
    measure_async,
    measure_trace,
    takes_long,
    takes_trace,
)
from pytest_agentbench.records import Case, MetricResult, MetricSpec, RunArtifact
from pytest_agentbench.store import JUDGEMENTS

if TYPE_CHECKING:
    from pytest_agentbench.models import Tape


async def measure_all(
    services: Services, job: Job, case: Case, artifact: RunArtifact, tape: Tape | None = None
) -> list[MetricResult]:
    """The result of every metric of the case, in order. Books what asking models has cost.

    A run that failed by its status is not shown to a model: such a metric is 0, as it is for an empty answer.
    """
    specs = metrics_of(case, job.plan.evaluation_profile)
    metrics = services.registry.metrics
    of_trace = {spec.name for spec in specs if takes_trace(metrics.get(spec.name))}
    reference, output = case.reference or "", artifact.final_output or ""
    asking = {spec.name for spec in specs if _asks(services, spec)}
    long = {spec.name for spec in specs if takes_long(spec.name, metrics, reference, output)}

    def plain(spec: MetricSpec) -> MetricResult:
        if spec.name in of_trace:
            return measure_trace(spec, case, artifact, metrics)
        return measure(spec, reference, output, metrics)

    if not asking and not long:
        return [plain(spec) for spec in specs]

    async def one(spec: MetricSpec) -> MetricResult:
        if spec.name in asking:
            if not is_judged(case, artifact):
                return _unasked(spec, artifact.status)
            return await measure_async(spec, reference, output, metrics, _context(services, job, case, tape))
        return await services.threads.run(partial(plain, spec)) if spec.name in long else plain(spec)

    results = await asyncio.gather(*map(one, specs))
    if used := [result.usage for result in results if result.usage is not None]:
        services.on_spent("judge", paid(tape, used))
    return results


def asks_models(services: Services, job: Job, case: Case) -> bool:
    """Whether any of the case's metrics asks a model."""
    return any(_asks(services, spec) for spec in metrics_of(case, job.plan.evaluation_profile))


def _asks(services: Services, spec: MetricSpec) -> bool:
    function = services.registry.metrics.get(spec.name)
    return function is not None and asks_model(function)


def _context(services: Services, job: Job, case: Case, tape: Tape | None) -> MetricContext:
    lane = job.plan.lane
    return MetricContext(
        case_id=case.case_id,
        question=question_of(case),
        client=lambda name: services.client(job.plan.judge_model(name), tape),
        redactor=lane.redactor,
        cache=Path(lane.output, JUDGEMENTS),
        anew=None if services.reuse_evaluations else services.asked_anew,
        remote=lane.remote,
        signer=lane.signer,
    )


def question_of(case: Case) -> str:
    """What the answer answers: the user messages at the end of the conversation."""
    said: list[str] = []
    for message in reversed((*case.messages, *case.turns)):
        if message.role == "user":
            said.append(message.content)
        elif said:
            break
    return "\n\n".join(reversed(said))


def _unasked(spec: MetricSpec, status: str) -> MetricResult:
    return MetricResult(
        name=spec.name,
        score=0.0,
        threshold=spec.threshold,
        passed=None if spec.threshold is None else spec.threshold <= 0,
        details={"reason": f"the run ended {status}, so no model was asked"},
    )
