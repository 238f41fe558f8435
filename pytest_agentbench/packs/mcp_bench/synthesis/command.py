"""`agentbench mcp synthesize`: make a file of MCP tasks for servers (seed 004, 4.2)."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import printable, refuse_usage
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.cli.servers import declared_servers, make_redactor, start_servers
from pytest_agentbench.config.prompt_files import read_prompts
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.ledger import Ledger
from pytest_agentbench.models.routes import missing_key, resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.options import parse_money, parse_positive
from pytest_agentbench.packs.mcp_bench.prompts import PROMPTS, SYNTHESIS_PROMPTS
from pytest_agentbench.packs.mcp_bench.synthesis.base import (
    STAGES,
    Catalogue,
    Combination,
    Verdict,
    parse_combination,
    read_combinations,
)
from pytest_agentbench.packs.mcp_bench.synthesis.drafts import CASE_ID, DRAFTS_SUFFIX, Drafts, DraftWriter
from pytest_agentbench.packs.mcp_bench.synthesis.synthesis import Outcome, Synthesis
from pytest_agentbench.packs.mcp_bench.synthesis.task_file import Job, TaskFile, make_jobs
from pytest_agentbench.packs.mcp_bench.wording import read_synthesis_wording, replace_prompts
from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.reports.table import line_up

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient


_OUTPUT = Path("outputs")
"""Folder of the servers' stored lists, as in sessions."""


class Call:
    """One call of the command: its arguments and the results so far.

    :raises ConfigError: a file or an option is wrong, or the model has no key.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._path = Path(os.path.abspath(args.output))  # without `..`: declarations in folders above count
        self._declared = declared_servers(args.profile)
        if args.servers is None:
            self._combinations = read_combinations(args.combinations)
        else:
            self._combinations = [parse_combination(args.servers)]
        self._model = _resolve_model(args.model, self._path)
        self._file = TaskFile(self._path)
        self._redactor = make_redactor(self._declared.servers.values())
        self._redactor.know(self._model.variables)
        self._prompts = read_prompts(args.prompts, PROMPTS).only(SYNTHESIS_PROMPTS) if args.prompts else None
        self._ledger = Ledger(STAGES, args.max_cost)
        self._outcome = Outcome()

    @property
    def is_complete(self) -> bool:
        """Return whether the file has all tasks that were asked for."""
        return len(self._outcome.accepted) + len(self._outcome.there) == self._wanted

    @property
    def _wanted(self) -> int:
        return len(self._combinations) * int(self._args.count)

    async def make(self) -> None:
        """Make the tasks. Each accepted task is written to the file at once."""
        catalogues = await self._catalogues()
        possible = [combination for combination in self._combinations if self._is_possible(combination, catalogues)]
        if not possible:
            return
        drafts_path = self._path.with_name(self._path.name + DRAFTS_SUFFIX)
        # The drafts' lock is also the task file's: two calls at once would make the same tasks.
        language, prompts = self._args.language, self._prompts
        digest = None if prompts is None else prompts.digest
        with Drafts.open(drafts_path, self._model.model_id, language, self._redactor, digest) as drafts:
            # Read again with the lock held: another call may have written to the file.
            self._file = TaskFile(self._path)
            jobs = [job for combination in possible for job in self._jobs(combination, catalogues)]
            async with _open_client(self._model, self._path) as client:
                asking = DraftWriter(client, drafts, self._ledger, self._redactor)
                wording = replace_prompts(read_synthesis_wording(language), prompts, language)
                synthesis = Synthesis(asking, drafts, self._file, wording, self._tell)
                self._outcome = synthesis.outcome
                await synthesis.run(jobs)

    async def _catalogues(self) -> dict[str, Catalogue]:
        """Return the tool lists of the requested servers; print the reason for each server that fails."""
        catalogues = {}
        async with start_servers(self._declared, _OUTPUT) as servers:
            for name in dict.fromkeys(name for combination in self._combinations for name in combination.servers):
                try:
                    answer = await servers.ask(name)
                except ConfigError as error:
                    _warn(str(error))
                    continue
                if answer.listing is not None and answer.listing.tools:
                    catalogues[name] = Catalogue(name, answer.listing.tools)
                else:
                    _warn(f"server {name!r}: {answer.problem or 'it lists no tools'}")
        return catalogues

    def _is_possible(self, combination: Combination, catalogues: Mapping[str, Catalogue]) -> bool:
        missing = [name for name in combination.servers if name not in catalogues]
        if missing:
            _warn(f"no tasks for {combination.name!r}: it needs {', '.join(missing)}")
        return not missing

    def _jobs(self, combination: Combination, catalogues: Mapping[str, Catalogue]) -> list[Job]:
        categories = {name: server.category for name, server in self._declared.servers.items()}
        return make_jobs(combination, self._args.count, catalogues, categories, self._file)

    def _tell(self, task_id: str, draft: int, verdict: Verdict) -> None:
        """Print a line when a draft has ended."""
        line = f"{task_id} draft {draft} {'accepted' if verdict.accepted else 'rejected'}"
        if verdict.quality is not None:
            line += f" (solvability {verdict.quality.solvability:g}, utility {verdict.quality.utility:g})"
        if verdict.reasons:
            line += f": {'; '.join(map(str, verdict.reasons))}"
        print(printable(line), flush=True)

    def tell_end(self) -> None:
        """Print the results of the tasks, and their cost."""
        outcome = self._outcome
        for task_id, reason in outcome.given_up.items():
            _warn(f"{task_id}: given up: {reason}")
        for task_id, reason in outcome.waiting.items():
            _warn(f"{task_id}: not made: {reason}")
        for line in (*self._counts(), *self._costs()):
            print(printable(line))
        used = {name for combination in self._combinations for name in combination.servers}
        if self._file.texts("task_description") and (
            unknown := used - enclosing_root(self._path).mcp_servers(self._path).keys()
        ):
            _warn(
                f"no servers.yaml or commands.json next to or above {self._args.output} declares "
                f"{', '.join(sorted(unknown))}: sessions need a run profile that declares them"
            )

    def _counts(self) -> Iterator[str]:
        outcome = self._outcome
        done = len(outcome.accepted) + len(outcome.there)
        earlier = f", {len(outcome.there)} of them existed before" if outcome.there else ""
        yield f"{done} of {self._wanted} tasks in {self._args.output}{earlier}"
        if outcome.drafts:
            reasons = ", ".join(f"{kind} {count}" for kind, count in outcome.reasons.most_common())
            yield f"{outcome.drafts} drafts rejected: {reasons}"

    def _costs(self) -> Iterator[str]:
        rows: list[tuple[str, ...]] = [("stage", "requests", "input tokens", "output tokens", "USD")]
        for stage, spent in self._ledger.rows():
            counts = (f"{count:,}" for count in (spent.requests, spent.input_tokens, spent.output_tokens))
            rows.append((stage, *counts, "?" if spent.unknown else f"{spent.cost_usd:.4f}"))
        yield from line_up(rows, least=(12, 8, 13, 13, 8))
        if (uncounted := self._ledger.uncounted()) is not None:
            yield uncounted


@asynccontextmanager
async def _open_client(model: Model, task_file: Path) -> AsyncIterator[ChatClient]:
    """Open the client of the model; a scripted one answers from the demo.yaml next to the task file."""
    scripts = Scripts()
    if model.scripted:
        scripts.load_beside(Case(case_id=CASE_ID, title=CASE_ID, path=task_file, runner=RunnerSpec(type="predictions")))
    endpoints = Endpoints(scripts=scripts)
    try:
        yield endpoints.client(model)
    finally:
        await endpoints.close()


def _resolve_model(model_id: str, task_file: Path) -> Model:
    """Return the model of that id, declared for the task file, else for the current folder.

    Raises ConfigError if its key is missing.
    """
    # A task file may be outside of every root: then the current folder's models are used.
    declared = [enclosing_root(path).models() for path in (task_file, Path.cwd())]
    model = resolve_model(model_id, models=next((models for models in declared if models.get(model_id)), declared[0]))
    if (reason := missing_key(model)) is not None:
        raise ConfigError(reason)
    return model


def _warn(message: str) -> None:
    print(f"agentbench mcp synthesize: {printable(message)}", file=sys.stderr)


_INTERRUPTED = 130


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "synthesize",
        help="make a file of MCP tasks for servers",
        description="Let a model make tasks for MCP servers: dependencies between their tools and a detailed task, a "
        "fuzzy request for it, mechanical checks, and an assessment that only good tasks pass. After an interruption "
        "the same command continues; nothing is paid for twice. Exit status 0: the file has all tasks; 1: fewer; "
        "2: wrong usage.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--servers", metavar="NAMES", help='the servers that each task uses, such as "Time,Git"')
    which.add_argument(
        "--combinations", type=Path, metavar="FILE", help="a file of combinations of servers, in the form of MCP-Bench"
    )
    parser.add_argument(
        "--count", type=parse_positive, default=1, metavar="N", help="tasks of each combination (default: %(default)s)"
    )
    parser.add_argument("--model", required=True, metavar="ID", help="the model that makes and assesses the tasks")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("tasks.json"),
        metavar="FILE",
        help="the task file, to which tasks are added; FILE.drafts.jsonl keeps every draft (default: %(default)s)",
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="of the tasks (default: %(default)s)")
    parser.add_argument("--prompts", type=Path, metavar="DIR", help="prompts in place of ours: <prompt>.<language>.txt")
    parser.add_argument(
        "--max-cost", type=parse_money, metavar="USD", help="ask nothing more once this call has cost this much"
    )
    parser.add_argument("--profile", metavar="NAME", help="the run profile with the sandbox of servers")


def run(args: argparse.Namespace) -> int:
    """Make the tasks; print how each draft ended, the results of the tasks, and the cost."""
    if args.output.suffix != ".json":
        return refuse_usage("mcp synthesize", f"--output: found {args.output}, expected a .json file")
    call = Call(args)
    try:
        asyncio.run(call.make())
    except KeyboardInterrupt:
        # Also after an error: accepted tasks are in the file, and their cost is reported.
        call.tell_end()
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return _INTERRUPTED
    call.tell_end()
    if call.is_complete:
        return 0
    return 1
