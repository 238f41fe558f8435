"""What else of a session can change a run or its verdict, beside the case, the model and the profiles."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.services import CaseRunner, Services
from pytest_agentbench.records import Case, Model, RunArtifact


def run_extra(services: Services, job: Job, case: Case, agent: Any, model: Model) -> dict[str, Any]:
    """Part of the run's fingerprint: an own agent's identity, a prediction's digest, a scripted model's script."""
    if job.plan.predictions is not None:
        return {"prediction": job.plan.predictions.digest(case, job.repetition)}
    if isinstance(agent, CaseRunner):
        return {}
    return {"agent": model.model_id, "metadata": case.metadata}


def verdict_identity(services: Services, job: Job, case: Case, artifact: RunArtifact) -> str:
    """The fingerprint of the verdict on a run: what its profile, checks, metrics and judges can change."""
    return job.plan.lane.evaluation_fingerprint(artifact.fingerprint or "", case, job.judges)
