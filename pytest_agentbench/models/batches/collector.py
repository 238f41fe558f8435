"""Collect requests into batches and hand out their answers. Each request is submitted once, also across sessions."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.errors import BatchWaitsError
from pytest_agentbench.models.apis.choice import find_endpoint_api
from pytest_agentbench.models.batches.jobs import Job, key_of, make_id, read_jobs
from pytest_agentbench.models.batches.services import BatchService, Line, find_kind, open_service, require_kind
from pytest_agentbench.models.clock import Wait
from pytest_agentbench.models.failures import RequestFailed
from pytest_agentbench.models.learning import LIMITS
from pytest_agentbench.models.replies import RawReply, price_tokens
from pytest_agentbench.models.routes import DEFAULT_BASE_URL, DRAW
from pytest_agentbench.models.spelling import BYTES_PER_TOKEN, write_request
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.secrets.redaction import strip_credentials

FEWEST = 50
"""Minimum number of unanswered requests for another batch; fewer are sent directly."""
BATCH_PRICE = 0.5
"""Price of a token in a batch, relative to its price: equal at OpenAI, Azure, Anthropic and Google."""
_ANSWER_TOKENS = 1000
"""Expected tokens of an answer without a limit."""
_MOST_ATTEMPTS = 3
_TRANSIENT = frozenset({0, 408, 429})
_NEAR = 0.9
_KEPT_SECONDS = 29 * 24 * 3600
"""Minimum seconds for which services keep results. An older job has none."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: `quiet` without a further request before a batch is submitted, `first` to `longest` between polls."""

    quiet: float = 10.0
    first: float = 10.0
    longest: float = 120.0


PACE = Pace()


class Collected(NamedTuple):
    """An answer from a batch, the batch's name, and how long it took in seconds."""

    reply: RawReply
    batch: str
    seconds: float


class Batches:
    """The batches of a session, recorded in its output folder. For one event loop.

    With `every` they take the requests for each model whose endpoint has batches, else for models whose entry asks for
    it. `wait` is the number of seconds to wait for them. `park(run, waits)` is called when a run begins and ends to
    wait for one, `tell` gets sentences for the user. `foresee(usd)` gets a request's expected cost when it begins to
    wait, and the negative amount when that ends; None if there is no limit.
    """

    def __init__(
        self,
        output: Path,
        *,
        every: bool,
        wait: float,
        tell: Callable[[str], None],
        park: Callable[[asyncio.Task[Any], bool], None] = lambda run, waits: None,
        foresee: Callable[[float], None] | None = None,
    ) -> None:
        self.output, self._every, self.tell, self.park, self.foresee = output, every, tell, park, foresee
        self._without: set[str] = set()
        self.deadline = time.monotonic() + wait
        self._batchers: dict[tuple[str | None, ...], Batcher] = {}

    def batcher(self, model: Model, key: str, headers: Mapping[str, str]) -> Batcher | None:
        """Return the collector of a model's requests, or None if they are sent directly.

        Raises ConfigError if its entry wants batches and its endpoint has none.
        """
        if model.batch is None and (not self._every or find_kind(model) is None):
            if self._every and model.model_id not in self._without:
                self._without.add(model.model_id)
                self.tell(f"{model.model_id}: its endpoint has no known batches: it is asked directly")
            return None
        base_url = strip_credentials(model.base_url or DEFAULT_BASE_URL)
        place = (base_url, model.requested_model, model.api_key_env, model.api)
        if place not in self._batchers:
            service = open_service(require_kind(model), model, key, headers)
            self._batchers[place] = Batcher(self, model, base_url, service)
        return self._batchers[place]

    async def close(self) -> None:
        """Leave unfinished batches to a later session, and remove stored answers from the jobs."""
        for batcher in self._batchers.values():
            await batcher.close()


class _Waiting(NamedTuple):
    """A request that waits. `attempt` is that of its line, from 1."""

    key: str
    body: dict[str, object]
    answer: asyncio.Future[Collected | None]
    attempt: int = 1


class Batcher:
    """The requests for one model of one endpoint."""

    def __init__(self, batches: Batches, model: Model, endpoint: str, service: BatchService) -> None:
        self._batches, self._model, self._endpoint, self._service = batches, model, endpoint, service
        self._jobs: dict[str, Job] = {}
        for job in reversed([*read_jobs(batches.output)]):  # oldest first: the newest job with a request counts
            if (job.endpoint, job.model) != self._place:
                continue
            if job.created < time.time() - _KEPT_SECONDS:
                job.remove(batches.output)
            else:
                self._jobs |= {key_of(line): job for line in job.ids}
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        self._fresh: dict[str, _Waiting] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, int] = {}
        self._collected: set[str] = set()

    @property
    def _place(self) -> tuple[str, str]:
        return self._endpoint, self._model.requested_model

    async def ask(self, body: dict[str, object]) -> Collected | None:
        """Return the answer to a request, or None if it must be sent directly.

        Raises RequestFailed if the batch is refused or cancelled, BatchWaitsError at the end of the wait.
        """
        if (foresee := self._batches.foresee) is None:
            return await self._wait(body)
        # The budget counts the expected cost while the batch runs, because its usage is known only at the end.
        foresee(cost := self._expect_cost(body))
        try:
            return await self._wait(body)
        finally:
            foresee(-cost)

    def _expect_cost(self, body: Mapping[str, object]) -> float:
        """Return the approximate USD of a request in a batch, 0 if the price is unknown."""
        names = (*LIMITS, find_endpoint_api(self._model).limit)
        limit = next((value for name in names if isinstance(value := body.get(name), int)), _ANSWER_TOKENS)
        usage = Usage(input_tokens=len(write_request(body)) // BYTES_PER_TOKEN, output_tokens=limit)
        return (price_tokens(usage, self._model) or 0.0) * BATCH_PRICE

    async def _wait(self, body: dict[str, object]) -> Collected | None:
        key = self._make_key(body)
        waiting = _Waiting(key, body, asyncio.get_running_loop().create_future())
        job = self._jobs.get(key)
        if job is None:
            self._add(waiting)
        else:
            attempt = next(int(line.rpartition("-")[2]) for line in job.ids if key_of(line) == key)
            self._join(job, waiting._replace(attempt=attempt))
        draw, longest = DRAW.get(), max(0.0, self._batches.deadline - time.monotonic()) + 60
        if draw is None:
            return await waiting.answer
        self._batches.park(draw.owner, True)
        try:
            with Wait(longest) as wait:
                wait.begin()
                answer = await waiting.answer
        finally:
            self._batches.park(draw.owner, False)

        def note_end(task: asyncio.Task[Any]) -> None:
            # A run that has ended is stored, so no later session needs the answer from the batch.
            if not task.cancelled():
                self._collected.add(key)

        draw.owner.add_done_callback(note_end)
        return answer

    def _make_key(self, body: Mapping[str, object]) -> str:
        draw = DRAW.get()
        identity = [self._endpoint, body, None if draw is None else draw.text]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
        # Equal requests with the same draw need different answers, so each further one gets its own key.
        self._asked[digest] = number = self._asked.get(digest, 0) + 1
        if number == 1:
            return key_of(digest)
        return key_of(hashlib.sha256(f"{digest}{number}".encode()).hexdigest())

    def _add(self, *requests: _Waiting) -> None:
        """Add requests to the next batch. It is submitted when it is full, or PACE.quiet seconds after the last one."""
        for request in requests:
            self._fresh[request.key] = request
            self._size += len(self._write_line(request))
        if self._timer is not None:
            self._timer.cancel()
        is_full = len(self._fresh) >= _NEAR * self._service.most_lines or self._size >= _NEAR * self._service.most_bytes
        self._timer = asyncio.get_running_loop().call_later(0 if is_full else PACE.quiet, self._submit)

    def _write_line(self, request: _Waiting) -> bytes:
        return self._service.write_line(make_id(request.key, request.attempt), request.body)

    def _submit(self) -> None:
        requests = [request for request in self._fresh.values() if not request.answer.done()]
        self._fresh, self._size = {}, 0
        if not requests:
            return
        ids = [make_id(request.key, request.attempt) for request in requests]
        job = Job(require_kind(self._model), self._model.requested_model, self._endpoint, self._model.api_key_env, ids)
        for request in requests:
            self._join(job, request)

    def _join(self, job: Job, waiting: _Waiting) -> None:
        self._jobs[waiting.key] = job
        self._waiting.setdefault(job.job, {})[waiting.key] = waiting
        if job.job not in self._tasks:
            # The task begins after this step of the loop, when all requests of a new job have joined it.
            self._tasks[job.job] = asyncio.ensure_future(self._see_through(job))

    async def _see_through(self, job: Job) -> None:
        try:
            if job.batch is None and not await self._find_or_create(job):
                return
            await self._collect(job)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - raised for each waiting request
            if job.state == "new":  # nothing was submitted
                job.remove(self._batches.output)
            self._fail(job, error)
        finally:
            self._tasks.pop(job.job, None)

    async def _find_or_create(self, job: Job) -> bool:
        """Return whether the job has a batch.

        A new job creates its batch. A job of an earlier session may have created one just before the session's end; if
        it did not, its requests are added to the next batch.
        """
        waiting = self._waiting[job.job]
        if job.state == "new" and len(waiting) == len(job.ids):
            lines = [self._write_line(request) for request in waiting.values()]
            job.save(self._batches.output)
            job.file = await self._service.upload(job, lines)
            self._note(job, "uploaded")
            job.batch = await self._create(job, lines)
        else:
            job.batch = await self._service.find(job)
            if job.batch is None:
                job.remove(self._batches.output)
                self._waiting.pop(job.job)
                for request in waiting.values():
                    del self._jobs[request.key]
                self._add(*waiting.values())
                return False
        self._note(job, "created")
        self._batches.tell(
            f"{len(job.ids)} requests to {self._model.model_id} wait in batch {job.batch} (job {job.job})"
        )
        return True

    async def _create(self, job: Job, lines: list[bytes]) -> str:
        """Create the batch and return its name. If no answer comes, search for it before it is created again."""
        try:
            return await self._service.create(job, lines)
        except RequestFailed as failed:
            if not failed.retryable:
                job.remove(self._batches.output)
                raise
        await asyncio.sleep(PACE.first)
        return await self._service.find(job) or await self._service.create(job, lines)

    def _note(self, job: Job, state: str) -> None:
        job.state = state
        job.save(self._batches.output)

    async def _collect(self, job: Job) -> None:
        """Wait until the batch has ended, and hand out its answers."""
        assert job.batch is not None
        interval = PACE.first
        while True:
            try:
                poll = await self._service.poll(job.batch)
            except RequestFailed as failed:
                if not failed.retryable:
                    raise
            else:
                if poll.state != job.state:
                    self._note(job, poll.state)
                if poll.ended:
                    break
            left = self._batches.deadline - time.monotonic()
            if left <= 0:
                raise BatchWaitsError(f"{len(self._waiting[job.job])} items wait in {job.batch}; run again to collect")
            await asyncio.sleep(min(interval, left))
            interval = min(1.5 * interval, PACE.longest)
        lines = await self._service.read(poll)
        self._give_out(job, {key_of(name): line for name, line in lines.items()}, poll.missing)

    def _give_out(self, job: Job, lines: Mapping[str, Line], missing: Line) -> None:
        failed: list[_Waiting] = []
        expired: list[_Waiting] = []
        assert job.batch is not None
        for key, waiting in self._waiting.pop(job.job).items():
            line = lines.get(key, missing)
            if line.lost == "cancelled":
                problem, advice = (
                    f"batch_cancelled: {job.batch} was cancelled",
                    "Run again to submit its requests again.",
                )
                self._end(waiting, RequestFailed("batch_cancelled", problem, advice, retryable=False))
            elif line.lost == "expired":
                expired.append(waiting)
            elif line.lost is not None or line.status in _TRANSIENT or line.status >= 500:
                failed.append(waiting)
            else:
                reply = RawReply(line.status, {"content-type": "application/json"}, line.body)
                self._end(waiting, Collected(reply, job.batch, time.time() - job.created))
        # Expired requests may succeed in the next batch; a few failed ones are sent directly instead.
        candidates = list(expired)
        if len(failed) >= FEWEST:
            candidates += failed
        if self._batches.deadline <= time.monotonic():
            candidates = []
        repeated = [request for request in candidates if request.attempt < _MOST_ATTEMPTS]
        keys = {request.key for request in repeated}
        for request in (*expired, *failed):
            if request.key not in keys:
                self._end(request, None)
        if repeated:
            self._add(*(request._replace(attempt=request.attempt + 1) for request in repeated))

    @staticmethod
    def _end(waiting: _Waiting, end: Collected | RequestFailed | Exception | None) -> None:
        if waiting.answer.done():  # its run was cancelled meanwhile
            return
        if isinstance(end, Exception):
            waiting.answer.set_exception(end)
        else:
            waiting.answer.set_result(end)

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, RequestFailed):
            # A request that may be paid for already must not be sent directly, which a retry would do.
            error.retryable = False
        for waiting in self._waiting.pop(job.job, {}).values():
            # A separate exception for each request, because each raise adds to its traceback.
            self._end(waiting, BatchWaitsError(*error.args) if isinstance(error, BatchWaitsError) else error)

    async def close(self) -> None:
        """Stop watching, and remove stored answers from the jobs."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._service.close()
        _forget(self._batches.output, self._collected)


def _forget(output: Path, collected: Collection[str]) -> None:
    """Remove requests whose runs are stored from their jobs, and jobs without other requests."""
    if not collected:
        return
    for job in read_jobs(output):
        open_lines = [line for line in job.ids if key_of(line) not in collected]
        if not open_lines:
            job.remove(output)
        elif len(open_lines) < len(job.ids):
            replace(job, ids=open_lines).save(output)
