"""Make tasks, several at once: draft after draft, each through generation, fuzzing, checks and the gate."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pytest_agentbench.errors import ConfigError, UnwritableError
from pytest_agentbench.packs.mcp_bench.synthesis.base import Generated, Kind, Quality, Reason, Stage, Verdict
from pytest_agentbench.packs.mcp_bench.synthesis.checks import find_detailed_problems, find_fuzzy_problems
from pytest_agentbench.packs.mcp_bench.synthesis.drafts import (
    Drafts,
    DraftWriter,
    NoReplyError,
    Place,
    UnusableReplyError,
)
from pytest_agentbench.packs.mcp_bench.synthesis.stages import (
    QUALITY_FORMAT,
    TASK_FORMAT,
    find_shortcomings,
    make_fuzzing_request,
    make_gate_request,
    make_generation_request,
    read_fuzzy,
    read_generated,
    read_quality,
)
from pytest_agentbench.packs.mcp_bench.synthesis.task_file import Job, TaskFile
from pytest_agentbench.packs.mcp_bench.wording import SynthesisWording

RETRIES = 5
"""Maximum further drafts of a task."""
AT_ONCE = 8
"""Maximum tasks in progress."""


@dataclass
class Outcome:
    """Result of the jobs: accepted now, existing before, given up after the last draft, and waiting.

    `given_up` and `waiting` contain the reasons. `drafts` counts the rejected drafts of these jobs, including earlier
    calls, and `reasons` the reasons against them.
    """

    accepted: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    given_up: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    drafts: int = 0
    reasons: Counter[Kind] = field(default_factory=Counter)


Tell = Callable[[str, int, Verdict], None]
"""Callback for the end of a draft: the task, the draft's number, the verdict."""


class Synthesis:
    """Make the tasks of one file. `outcome` is updated when jobs end."""

    def __init__(
        self, asking: DraftWriter, drafts: Drafts, file: TaskFile, wording: SynthesisWording, tell: Tell
    ) -> None:
        self.outcome = Outcome()
        self._asking, self._drafts, self._file = asking, drafts, file
        self._wording, self._tell = wording, tell

    async def run(self, jobs: Sequence[Job]) -> None:
        """Make the tasks of the jobs, AT_ONCE at a time. An exception of `tell` ends the work."""
        # Workers share one iterator: a job begins when another ends, and jobs after a stop are not started.
        todo = iter(jobs)

        async def work() -> None:
            for job in todo:
                try:
                    await self._make(job)
                except NoReplyError as error:
                    self.outcome.waiting[job.task_id] = str(error)
                except (UnwritableError, ConfigError) as error:  # errors of the task file: pay for nothing more
                    self._asking.stopped = self.outcome.waiting[job.task_id] = str(error)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(jobs))):
                    group.create_task(work())
        except ExceptionGroup as group_error:  # callers expect the exception of `tell`, such as a broken pipe
            raise group_error.exceptions[0] from group_error

    async def _make(self, job: Job) -> None:
        if job.task_id in self._file:
            self.outcome.there.append(job.task_id)
            return
        former: list[Verdict] = []
        for draft in range(1, RETRIES + 2):
            verdict = self._find_verdict(job, draft) or await self._make_draft(job, draft, former)
            if verdict.accepted:
                self.outcome.accepted.append(job.task_id)
                return
            self.outcome.drafts += 1
            self.outcome.reasons.update(reason.kind for reason in verdict.reasons)
            former.append(verdict)
        self.outcome.given_up[job.task_id] = "; ".join(map(str, former[-1].reasons))

    def _find_verdict(self, job: Job, draft: int) -> Verdict | None:
        """Return the verdict on a draft of an earlier call, or None.

        An accepted task is added again if the whole file was deleted. If only the task was, its draft becomes rejected.
        """
        verdict = self._drafts.verdict(job.task_id, draft)
        if verdict is None or not verdict.accepted:
            return verdict
        if not self._file.was_there:
            self._accept(job, verdict)
            return verdict
        removed = Reason(kind="removed by hand", text=f"it is no longer in {self._file.path.name}")
        verdict = verdict.model_copy(update={"reasons": (removed,)})
        self._drafts.keep_verdict(job.task_id, draft, verdict)
        return verdict

    async def _make_draft(self, job: Job, draft: int, former: Sequence[Verdict]) -> Verdict:
        """Make a new draft, and store its verdict."""
        verdict = await self._draft(job, draft, former)
        if verdict.accepted:
            self._accept(job, verdict)
        self._drafts.keep_verdict(job.task_id, draft, verdict)
        self._tell(job.task_id, draft, verdict)
        return verdict

    def _accept(self, job: Job, verdict: Verdict) -> None:
        if verdict.generated is None or verdict.fuzzy is None:
            raise ValueError(f"{job.task_id}: an accepted draft has both texts")
        self._file.add(job.combination, job.task_id, verdict.generated, verdict.fuzzy, job.distraction)

    async def _draft(self, job: Job, draft: int, former: Sequence[Verdict]) -> Verdict:
        """Make a draft stage by stage, up to the first stage with reasons against it.

        If only the fuzzy text of the last draft was rejected, its detailed task gets another fuzzy text.
        """
        generated = None
        if former and former[-1].stage == "fuzzing":
            generated = former[-1].generated
        try:
            if generated is None:
                generated, reasons = await self._generate(job, draft, former)
                if reasons:
                    return Verdict(stage="generation", reasons=reasons, generated=generated)
        except UnusableReplyError as error:
            return Verdict(stage="generation", reasons=_make_unparseable_reason(error))
        try:
            fuzzy, reasons = await self._fuzz(job, draft, generated, former)
        except UnusableReplyError as error:
            return Verdict(stage="fuzzing", reasons=_make_unparseable_reason(error), generated=generated)
        if reasons:
            return Verdict(stage="fuzzing", reasons=reasons, generated=generated, fuzzy=fuzzy)
        try:
            quality, reasons = await self._assess(job, draft, generated, fuzzy)
        except UnusableReplyError as error:
            return Verdict(stage="gate", reasons=_make_unparseable_reason(error), generated=generated, fuzzy=fuzzy)
        # A concurrent job may have accepted a task with the same text while this one was assessed.
        reasons = reasons or tuple(
            find_detailed_problems(generated, job.catalogues, self._file.texts("task_description"))
        )
        return Verdict(stage="gate", reasons=reasons, generated=generated, fuzzy=fuzzy, quality=quality)

    async def _generate(self, job: Job, draft: int, former: Sequence[Verdict]) -> tuple[Generated, tuple[Reason, ...]]:
        others = self._file.texts("task_description", job.combination)
        problems = _list_former_reasons(former, ("generation", "gate"))
        messages = make_generation_request(self._wording, job, others, problems)
        place = Place(job.task_id, draft, "generation")
        generated = await self._asking(place, messages, TASK_FORMAT, partial(read_generated, catalogues=job.catalogues))
        existing = self._file.texts("task_description")
        return generated, tuple(find_detailed_problems(generated, job.catalogues, existing))

    async def _fuzz(
        self, job: Job, draft: int, generated: Generated, former: Sequence[Verdict]
    ) -> tuple[str, tuple[Reason, ...]]:
        detailed = generated.task_description
        messages = make_fuzzing_request(
            self._wording,
            detailed,
            sum(len(catalogue.tools) for catalogue in job.catalogues),
            exact=job.exact,
            problems=_list_former_reasons(former, ("fuzzing",)),
        )
        fuzzy = await self._asking(Place(job.task_id, draft, "fuzzing"), messages, None, read_fuzzy)
        existing = self._file.texts("fuzzy_description")
        return fuzzy, tuple(find_fuzzy_problems(detailed, fuzzy, job.catalogues, existing, exact=job.exact))

    async def _assess(
        self, job: Job, draft: int, generated: Generated, fuzzy: str
    ) -> tuple[Quality, tuple[Reason, ...]]:
        messages = make_gate_request(self._wording, generated.task_description, fuzzy, job.catalogues)
        quality = await self._asking(Place(job.task_id, draft, "gate"), messages, QUALITY_FORMAT, read_quality)
        return quality, tuple(find_shortcomings(quality))


def _list_former_reasons(former: Iterable[Verdict], stages: Sequence[Stage]) -> list[Reason]:
    """Return the reasons against earlier drafts at these stages, each once."""
    return list(dict.fromkeys(reason for verdict in former if verdict.stage in stages for reason in verdict.reasons))


def _make_unparseable_reason(error: UnusableReplyError) -> tuple[Reason, ...]:
    return (Reason(kind="unparseable", text=" ".join(str(error).split())),)
