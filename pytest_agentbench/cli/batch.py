"""`agentbench batch list | cancel JOB`: batches that sessions have handed in and not collected yet."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError, ProviderError

if TYPE_CHECKING:
    from pytest_agentbench.models.batches.jobs import Job
    from pytest_agentbench.records.case import Model


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("batch", help="list and cancel batches", description=__doc__)
    commands = parser.add_subparsers(dest="batch_command", metavar="COMMAND", required=True)
    listed = commands.add_parser("list", help="show the batches that wait, newest first")
    cancelled = commands.add_parser(
        "cancel",
        help="stop a batch",
        description="Ask the service to stop. Replies that are ready are still collected.",
    )
    cancelled.add_argument("job", metavar="JOB", help="the job as `agentbench batch list` names it")
    cancelled.add_argument(
        "--cases",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="the folder of the cases, whose models.yaml decides where the key is sent (default: the current one)",
    )
    for command in (listed, cancelled):
        command.add_argument(
            "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
        )


def run(args: argparse.Namespace) -> int:
    """Run one of them: 0 all is well, 1 there is no such job, or nobody who may ask for its end."""
    import asyncio

    from pytest_agentbench.models.batches.jobs import read_jobs
    from pytest_agentbench.store.output_folder import refuse_links

    refuse_links(args.output)
    jobs = [*read_jobs(args.output)]
    if args.batch_command == "list":
        for job in jobs:
            print(printable(_describe(job)))
        if not jobs:
            print("no batch waits")
        return 0
    matches = [each for each in jobs if args.job in (each.job, each.batch)]
    if not matches:
        known = ", ".join(each.job for each in jobs) or "none"
        raise ConfigError(f"agentbench batch cancel: found no job {args.job!r} in {args.output}, there are: {known}")
    job = matches[0]
    if job.batch is None:
        raise ConfigError(f"job {job.job}: it was not handed in, so there is no batch to cancel")
    asyncio.run(_cancel(job, _find_model(job, args.cases)))
    print(printable(f"{job.batch}: is being cancelled; run the session again to collect the finished replies"))
    return 0


def _describe(job: Job) -> str:
    hours = (time.time() - job.created) / 3600
    batch = job.batch or "not handed in"
    return (
        f"{job.job}  {batch}  {job.state}  {len(job.ids)} requests to {job.model} at {job.endpoint}  {hours:.1f} h ago"
    )


def _find_model(job: Job, cases: Path) -> Model:
    """Return the job's model. Its entry in models.yaml decides which host gets the key; job files may be forged."""
    from pytest_agentbench.cli.places import enclosing_root
    from pytest_agentbench.models.routes import DEFAULT_BASE_URL, missing_key, resolve_model
    from pytest_agentbench.secrets.redaction import strip_credentials

    models = enclosing_root(cases).models()
    for entry in models.models:
        model = resolve_model(entry.model_id, models=models)
        place = (strip_credentials(model.base_url or DEFAULT_BASE_URL), model.requested_model)
        if place == (job.endpoint, job.model):
            if reason := missing_key(model):
                raise ConfigError(reason)
            return model
    raise ConfigError(f"job {job.job}: no models.yaml asks {job.model!r} at {job.endpoint}; name its folder by --cases")


async def _cancel(job: Job, model: Model) -> None:
    from pytest_agentbench.models.batches.services import open_service
    from pytest_agentbench.models.client import read_keys
    from pytest_agentbench.models.failures import RequestFailed

    service = open_service(job.kind, model, *read_keys(model, os.environ))
    try:
        assert job.batch is not None
        await service.cancel(job.batch)
    except RequestFailed as failed:
        error: ProviderError = failed.to_error(model, 1, 0)
        raise error from failed
    finally:
        await service.close()
