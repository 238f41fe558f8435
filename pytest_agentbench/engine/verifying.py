"""What verifiers need of a session: their sandbox, and their part of a verdict's identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_agentbench.checks import CheckContext
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.sandboxing import sandbox_part, sandbox_spec
from pytest_agentbench.engine.services import Services
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, CheckResult

_GRADING = 2
"""Raised where the same verifier may decide otherwise, on what was written against it: 2, reports are signed."""


async def verify_all(services: Services, job: Job, case: Case, context: CheckContext) -> tuple[CheckResult, ...]:
    """The results of the case's verifiers. Raises UnavailableError where they cannot run here."""
    if not case.verify:
        return ()
    from pytest_agentbench.checks.verifying.run import no_workspace, run_verifiers

    if job.plan.predictions is not None:
        return no_workspace(case)
    spec = sandbox_spec(services, job, case)
    await services.sandboxes.prepare(spec)
    return await run_verifiers(context, services.sandboxes, spec)


def verifiers_identity(job: Job, case: Case) -> dict[str, Any]:
    """What the verifiers are to do, what their hidden files hold, and their sandbox.

    Raises ConfigError for what cannot be read.
    """
    return {"grading": _GRADING, "verifiers": list(_identities(case)), "sandbox": sandbox_part(job, case)}


def _identities(case: Case) -> Iterator[dict[str, Any]]:
    from pytest_agentbench.checks.verifying.staging import source_digest

    for verifier in case.verify:
        try:
            files = {hidden.target: source_digest(hidden) for hidden in verifier.files}
        except OSError as error:
            raise ConfigError(f"{case.path}:{case.line}: verify: {error.filename}: {error.strerror}") from error
        apart = {"apart": True} if verifier.apart else {}
        yield {**verifier.model_dump(exclude={"files", "apart", "canary"}), "files": files, **apart}
