"""Work on many items at once: chunks on threads with ordered results, and an event loop for requests to models."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import MetricContext
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import Case, RunnerSpec, legal_id
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.sources.items import BenchmarkItem
from pytest_agentbench.store.output_folder import JUDGEMENTS

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pytest_agentbench.benchmark.results import EvaluationResult
    from pytest_agentbench.models.client import ChatClient, Endpoints


Scored = TypeVar("Scored")

_LARGEST_CHUNK = 256
_CHUNKS_PER_WORKER = 4


def score_in_chunks(
    score: Callable[[int], Scored], count: int, workers: int, progress: Callable[[list[Scored]], None] | None = None
) -> list[Scored]:
    """Return `score(index)` for every index below `count`, in order; `progress` gets the results of each chunk.

    With one worker everything runs in the caller's thread. An exception of `score` ends the work and is raised here.
    The threads are daemons, so neither it nor Ctrl-C waits for an item in another thread.
    """
    # Small enough that workers do not wait long for a slow last chunk, large enough that locks cost nothing.
    size = max(1, min(_LARGEST_CHUNK, count // (workers * _CHUNKS_PER_WORKER)))
    chunks = [range(start, min(start + size, count)) for start in range(0, count, size)]
    made: list[list[Scored]] = [[]] * len(chunks)
    finished = _run_serial(score, chunks) if workers == 1 else _run_threaded(score, chunks, workers)
    for at, results in finished:
        made[at] = results
        if progress is not None:
            progress(results)
    return [result for results in made for result in results]


def default_workers() -> int:
    """Return the default number of threads of `concurrent.futures`."""
    return min(32, (os.cpu_count() or 1) + 4)


def _run_serial(score: Callable[[int], Scored], chunks: Sequence[range]) -> Iterator[tuple[int, list[Scored]]]:
    for at, chunk in enumerate(chunks):
        yield at, [score(index) for index in chunk]


def _run_threaded(
    score: Callable[[int], Scored], chunks: Sequence[range], workers: int
) -> Iterator[tuple[int, list[Scored]]]:
    todo = iter(enumerate(chunks))
    lock = threading.Lock()
    stop = threading.Event()
    done: queue.SimpleQueue[tuple[int, list[Scored]] | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            while not stop.is_set():
                with lock:
                    at, chunk = next(todo, (-1, range(0)))
                if at < 0:
                    return
                results = []
                for index in chunk:
                    if stop.is_set():
                        return
                    results.append(score(index))
                done.put((at, results))
        except BaseException as error:  # noqa: BLE001  raised where the results are awaited
            done.put(error)

    try:
        for number in range(min(workers, len(chunks))):
            # A metric's own context variables, such as a decimal context or a tracer's span, hold on the threads too.
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(work,), name=f"agentbench-metric-{number}", daemon=True).start()
        for _ in chunks:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stop.set()


T = TypeVar("T")

DEFAULT_AT_ONCE = 16
"""Number of items that ask models at the same time."""

_SECONDS_TO_CLOSE = 5.0


@dataclass
class Desk:
    """The clients of metrics that ask models: the models of `root`, with answers stored below `output`.

    `files` are the data files, whose scripts answer for scripted models, and `dataset` is their name in case ids.
    """

    root: ConfigRoot
    output: Path
    files: Sequence[Path]
    dataset: str
    _endpoints: Endpoints | None = None
    _scripts: Scripts = field(default_factory=Scripts)
    _clients: dict[str, ChatClient] = field(default_factory=dict)
    _redactor: Redactor = field(default_factory=Redactor)

    def context(self, item: BenchmarkItem) -> MetricContext:
        """Return the context of the metric of an item."""
        return MetricContext(
            case_id=f"{self.dataset}.{legal_id(item.id)}",
            question=item.question,
            client=self._client,
            redactor=self._redactor,
            cache=self.output / JUDGEMENTS,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._endpoints is not None:
            await self._endpoints.close()

    def _client(self, model_id: str | None) -> ChatClient:
        from pytest_agentbench.models.client import Endpoints
        from pytest_agentbench.models.routes import missing_key, resolve_model

        model_id = model_id or os.environ.get("OPENAI_MODEL")
        if model_id is None:
            raise ConfigError(
                "no model to ask; name one: evaluate(..., model=...), --model of `agentbench evaluate`, or OPENAI_MODEL"
            )
        if model_id not in self._clients:
            model = resolve_model(model_id, models=self.root.models())
            if (reason := missing_key(model)) is not None:
                raise ConfigError(reason)
            self._redactor.know(model.variables)
            if self._endpoints is None:
                self._endpoints = Endpoints(scripts=self._scripts)
            for file in self.files if model.scripted else ():
                self._scripts.load_beside(_make_case(file, self.dataset))
            self._clients[model_id] = self._endpoints.client(model)
        return self._clients[model_id]


@dataclass(frozen=True, slots=True)
class Pending:
    """An item whose result is awaited: it asks a model, or runs a check."""

    item: BenchmarkItem
    finish: Callable[[Desk], Awaitable[EvaluationResult]]


def finish_all(
    pending: Sequence[Pending], desk: Desk, at_once: int, progress: Callable[[int], None] | None = None
) -> list[EvaluationResult]:
    """Finish all items and return their results in order. Closes the desk.

    `progress` gets the number of newly finished items, on another thread.
    """

    async def main() -> list[EvaluationResult]:
        results: dict[int, EvaluationResult] = {}
        todo = iter(enumerate(pending))

        async def work() -> None:
            for at, item in todo:  # all workers draw from one iterator, which is safe on one event loop
                results[at] = await item.finish(desk)
                if progress is not None:
                    progress(1)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(pending))):
                    group.create_task(work())
        finally:
            await desk.close()
        return [results[at] for at in range(len(pending))]

    return _run_on_own_loop(main)


def _run_on_own_loop(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run `main` in a thread, because the caller's may have a running loop, as in a notebook. Ctrl-C cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    ended: Future[T] = Future()

    async def wait() -> T:
        return await task

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                value = runner.run(wait())
        except BaseException as error:  # noqa: BLE001  raised in the caller's thread
            ended.set_exception(error)
        else:
            ended.set_result(value)

    thread = threading.Thread(target=run, name="agentbench-ask", daemon=True)
    try:
        thread.start()
        return ended.result()
    except KeyboardInterrupt:
        with contextlib.suppress(RuntimeError):  # the loop has just ended, or has never begun
            loop.call_soon_threadsafe(task.cancel)
            thread.join(_SECONDS_TO_CLOSE)
        raise


def _make_case(data: Path, dataset: str) -> Case:
    """Return a case of the dataset, whose path leads to the script next to it."""
    return Case(case_id=dataset, title=dataset, path=data, dataset=dataset, runner=RunnerSpec(type="predictions"))
