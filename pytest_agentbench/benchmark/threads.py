"""Items in chunks on several threads, with results in the items' order."""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_LARGEST_CHUNK = 256
_CHUNKS_PER_WORKER = 4


def in_chunks(
    score: Callable[[int], T], count: int, workers: int, progress: Callable[[list[T]], None] | None = None
) -> list[T]:
    """`score(index)` for every index below `count`, in order; `progress` gets the results of each chunk.

    With one worker all runs in the caller's thread. What `score` raises ends it and is raised here. The threads are
    daemons: neither that nor Ctrl-C waits for an item that another thread is on.
    """
    size = max(1, min(_LARGEST_CHUNK, count // (workers * _CHUNKS_PER_WORKER)))
    chunks = [range(start, min(start + size, count)) for start in range(0, count, size)]
    made: list[list[T]] = [[]] * len(chunks)
    for at, results in _serial(score, chunks) if workers == 1 else _threaded(score, chunks, workers):
        made[at] = results
        if progress is not None:
            progress(results)
    return [result for results in made for result in results]


def default_workers() -> int:
    """As many threads as `concurrent.futures` takes by default."""
    return min(32, (os.cpu_count() or 1) + 4)


def _serial(score: Callable[[int], T], chunks: Sequence[range]) -> Iterator[tuple[int, list[T]]]:
    for at, chunk in enumerate(chunks):
        yield at, [score(index) for index in chunk]


def _threaded(score: Callable[[int], T], chunks: Sequence[range], workers: int) -> Iterator[tuple[int, list[T]]]:
    todo = iter(enumerate(chunks))
    lock = threading.Lock()
    stop = threading.Event()
    done: queue.SimpleQueue[tuple[int, list[T]] | BaseException] = queue.SimpleQueue()

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
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(work,), name=f"agentbench-metric-{number}", daemon=True).start()
        for _ in chunks:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stop.set()
