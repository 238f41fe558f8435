"""Run jobs ahead of pytest, which takes one item at a time, within limits that hold over all workers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.ending import RUN, RunCalls
from pytest_agentbench.engine.job import Job, Result, Work
from pytest_agentbench.engine.user_code import LoopWatch

if TYPE_CHECKING:
    from pytest_agentbench.engine.limits import WorkerThrottles
    from pytest_agentbench.models.limits import Throttling


_QUIET, _BURST = 0.01, 0.2
"""Seconds: maximum duration of a short run, and of a burst.

Python runs one thread at a time. If agents answer at once and the two threads take turns within each run, that costs
a sixth of a session's CPU. So they work in bursts: pytest is answered when the window is full or no short run has
ended for a while, and the engine starts nothing while pytest has results to take.
"""
_BATCH = 128
"""Maximum results that pytest takes before more runs start. They keep its thread busy for about 60 ms."""
_ABANDONED: list[asyncio.Task[Any]] = []
"""Tasks that swallow cancellation, kept to the end of the process: a collected one would run on without a loop."""


class _Flight(NamedTuple):
    """A run in flight, with its runner, its calls to models and its start."""

    task: asyncio.Task[None]
    runner: Any
    calls: RunCalls
    began: float
    """By time.perf_counter."""


class LookAhead:
    """Runs jobs in order on one daemon thread: at most `concurrency` in flight, at most `window` ahead of pytest.

    The jobs of a start group share a runner, and start once pytest has resolved the runner for one of them.

        pytest's thread                                  the engine's thread (runs the event loop)

        result(job) -- in `done`? ----> take it
            | no
            +-- post(_demand, job) ----------------> start the job now, or wait for its flight
            |   wait for `answer`, at most 0.1 s         |
            |   at a time, and call tick()               v
            +<---------------------- answer.put -- _answer, when the flight has landed

        at = rank of pytest's item ------------> _pump: start waiting jobs while rank <= at + window

    A job is in one of these states. Only the engine's thread changes the state, except for the last step:

        waiting -> running (a _Flight in `running`) -> done (a Result in `done`) -> taken by pytest's thread
        running, but parked: it waits for a batch and does not count as in flight

    Owners: both threads use `done` (atomic operations of a dictionary), `at`, `starved`, `window`, `batch`, `stopped`,
    `drained`, `held`, `over` and `ending` (single assignments). All other state belongs to the engine's thread; other
    threads change it by `post`.

    Failures: `_guard` surrounds every step on the loop, and every waiter polls `over`. So a broken engine is an error
    of each pending item and never a session that hangs. A job is "not run" only after `drain`, `halt`, `finish`
    or `cancel`, with their reason; any other job without a result is an error.
    """

    def __init__(
        self,
        work: Work,
        *,
        concurrency: int,
        window: int,
        limits: dict[Hashable, int] | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.work, self.concurrency, self.window, self.limits = work, concurrency, window, limits or {}
        self.on_close, self.warn = on_close, warn
        self.batch = min(window - window // 8, _BATCH)
        self.at = self.planned = 0  # ranks: of pytest's item, and of the last job of the order
        self.starved = 0  # rank of the first job beyond the window, 0 if the engine does not wait for pytest
        self.short_ended = 0.0
        self.closed = False
        self.stopped: str | None = None
        self.drained: str | None = None
        self.held = False
        self.grace = 5.0
        self.waiting: dict[Hashable, deque[Job]] = {}
        self.suspects: deque[int] = deque()
        self.done: dict[Job, Result] = {}
        self.cancelled: dict[Job, str] = {}  # with the reasons
        self._reset()

    def _reset(self) -> None:
        self.over = self.ending = False
        self.on_idle: Callable[[], None] | None = None
        self.died: BaseException | None = None
        self.death = ""
        self.asked = 0  # items that wait for an answer
        self.delayed: list[tuple[Job, Any, bool, queue.SimpleQueue[Result]]] = []  # demands while runs are held
        self.runners: dict[Hashable, Any] = {}
        self.running: dict[Job, _Flight] = {}
        self.parked: dict[asyncio.Task[Any], int] = {}
        self.groups: dict[asyncio.Task[Any], Hashable] = {}
        self.busy: dict[Hashable, int] = {}  # runs in flight by start group, without parked ones
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._serve, name="agentbench-engine", daemon=True)
        self.watch = LoopWatch(self.loop, self.thread, self._runs, self.warn)

    # -- called by pytest's thread

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function on the engine's thread. Once the loop is closed this does nothing: waiters poll `over`."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._guard, function, *args)

    def result(self, job: Job, runner: Any, *, shared: bool, tick: Callable[[], None]) -> Result:
        """Wait for the job's result and return it. `tick` is called several times a second while pytest waits.

        `shared` means that the runner lives as long as the session, so that other jobs of the group may use it. A job
        that ran ahead with another runner than its item's is run again with its own.
        """
        if self.ending and not self.closed and not self.thread.is_alive():
            self._reset()  # another plugin runs an item again after the last one's teardown
        if not self.thread.ident and not self.closed:
            self.thread.start()
        ready = self.done.pop(job, None)
        if ready is not None and ready.runner is runner:  # the common case needs no other thread
            self.at = max(self.at, job.rank)
            if self.starved and self.at + self.window - self.starved >= self.batch:  # waking is dear
                self.post(self._pump)
            return ready
        answer: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.post(self._demand, job, runner, shared, answer)
        while True:
            over = self.over or self.ending
            try:
                return answer.get(timeout=0 if over else 0.1)
            except queue.Empty:
                if over:
                    return self._fetched(job, runner)
                self.watch.look()
            tick()

    def has_ended(self, job: Job) -> bool:
        """Return whether the job's result is there to be fetched."""
        return job in self.done

    def drain(self, reason: str) -> None:
        """Start no further run. Runs in flight end, and their results can still be taken."""
        self.drained = self.drained or reason
        if self.held:
            self.post(self._release)

    def hold(self) -> None:
        """Start no further run until `go_on`. Runs in flight go on, and items wait for theirs."""
        self.held = True

    def go_on(self) -> None:
        """Start runs again."""
        self.held = False
        self.post(self._release)

    def halt(self, reason: str) -> None:
        """Start no further run and cancel runs in flight. Results that are done can still be taken."""
        self.stopped = self.stopped or reason
        self.post(self._cancel)

    def finish(self, reason: str, seconds: float, on_idle: Callable[[], None]) -> None:
        """Start no further run, and let runs send no further request. Cancel runs in flight after `seconds`.

        Runs that need no further request end as usual. `on_idle` is called once nothing is in flight, on the engine's
        thread or at once if that does not run. It may be called twice.
        """
        self.stopped, self.drained = self.stopped or reason, self.drained or reason
        self.post(self._finish, seconds, on_idle)
        if not self.thread.is_alive():  # in a worker that has just taken the place of another
            on_idle()

    def pause(self) -> None:
        """Cancel runs in flight and end the thread; a later request for a job starts a new thread.

        An agent's plain function cannot be cancelled: its daemon thread is left behind.
        """
        if self.ending:
            return
        self.ending = True
        if self.thread.ident:
            self.post(self.loop.stop)
            # Longer than the loop's own grace for its tasks, so that the thread can end by itself
            self.thread.join(self.grace + 2)
            self.watch.end()
        else:  # never started
            self.loop.close()

    def close(self) -> None:
        """End the thread and start no other. A later request for a job returns an error."""
        self.closed = True
        self.pause()

    # -- the engine's own thread

    def extend(self, jobs: Iterable[Job], suspects: Iterable[Job] = ()) -> None:
        """Append jobs to the order. A suspect, which may have killed a worker, starts only when pytest asks for it."""
        doubtful = set(suspects)
        for job in jobs:
            self.planned += 1
            job.rank = self.planned
            if job in doubtful:
                self.suspects.append(job.rank)
            else:
                self.waiting.setdefault(job.start_group, deque()).append(job)
        self._pump()

    def cancel(self, job: Job, reason: str) -> None:
        """Cancel one run in flight, which is then "not run" for this reason. A run that has ended is not changed."""
        if (flight := self.running.get(job)) is not None:
            self.cancelled[job] = reason
            flight.task.cancel()

    def retune(self, work: Work, concurrency: int, window: int) -> None:
        """Start runs by this work and within these limits from now on, in place of the limits of start groups too."""
        self.work, self.concurrency, self.window, self.limits = work, concurrency, window, {}
        self.batch = min(window - window // 8, _BATCH)
        self._pump()

    @property
    def ended(self) -> int:
        """Return the number of runs that have ended, whether pytest has taken their results or not."""
        return max(0, self.at - 1) + len(self.done)

    @property
    def coming(self) -> int:
        """Return the number of jobs that start when the runs in flight have ended, at most `concurrency`."""
        if self.stopped or self.drained:
            return 0
        return min(self.concurrency, sum(map(len, self.waiting.values())))

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # every waiter gets the exception that ended the loop
            self.died = self.died or error
        if not self.ending:
            died = self.died or RuntimeError("its event loop was stopped from within")
            self.death = f"the engine died: {died!r}; {self._in_flight()}"
        self.over = True  # from here on result() waits for nothing
        with contextlib.suppress(BaseException):  # an agent's task may end this too; all else ends with the process
            self._wind_up()
        if tasks := asyncio.all_tasks(self.loop):
            _ABANDONED.extend(tasks)
            self.loop.set_exception_handler(lambda loop, context: None)  # it would report these tasks at exit
        self.loop.close()

    def _wind_up(self) -> None:
        self._cancel()
        if not self._settled({flight.task for flight in self.running.values()}):
            return  # an agent swallows cancellation: its task never runs again
        if self.on_close is not None:
            with contextlib.suppress(Exception):  # connections close with the process at the latest
                self.loop.run_until_complete(asyncio.wait_for(self.on_close(), self.grace))
        if not self._settled(asyncio.all_tasks(self.loop)):
            return
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def _runs(self) -> dict[asyncio.Task[Any], str]:
        return {flight.task: job.case_id for job, flight in [*self.running.items()]}

    def _in_flight(self) -> str:
        names = [*self._runs().values()]
        if len(names) > 3:
            names[3:] = [f"{len(names) - 3} more"]
        return f"in flight were {', '.join(names) or 'no runs'}"

    def _settled(self, tasks: set[asyncio.Task[Any]]) -> bool:
        """Return whether the tasks end within the grace."""
        return not tasks or not self.loop.run_until_complete(asyncio.wait(tasks, timeout=self.grace))[1]

    def _guard(self, function: Callable[..., None], *args: Any) -> None:
        try:  # asyncio only logs a callback's exception: the session would hang
            function(*args)
        except BaseException as error:  # noqa: BLE001
            self.died = self.died or error
            self.loop.stop()

    def _release(self) -> None:
        """Take up the demands that came while runs were held."""
        delayed, self.delayed = self.delayed, []
        for demand in delayed:
            self._demand(*demand)
        self._pump()

    def _cancel(self) -> None:
        self.waiting.clear()
        self._release()
        for flight in self.running.values():
            flight.task.cancel()

    def _finish(self, seconds: float, on_idle: Callable[[], None]) -> None:
        self.waiting.clear()
        self._release()
        self.on_idle = on_idle
        for job, flight in self.running.items():
            flight.calls.end(is_free=job.is_free)
        self.loop.call_later(seconds, self._guard, self._cancel)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self.on_idle is not None and not self.running:
            self.on_idle()

    def _demand(self, job: Job, runner: Any, shared: bool, answer: queue.SimpleQueue[Result]) -> None:
        # Not in result(): only on this thread is the worker's share, which ranks the job, certain to precede this step
        self.at = max(self.at, job.rank)
        if shared:
            self.runners.setdefault(job.start_group, runner)  # opens the group
        ready = self.done.pop(job, None)
        if ready is not None and ready.runner is runner:
            answer.put(ready)
            return
        if self.stopped or self.over:
            answer.put(self._result_without_run(job, runner))
            return
        flight = self.running.get(job)
        if flight is None or flight.runner is not runner:  # not started, or started with another runner
            if self.drained:
                answer.put(self._result_without_run(job, runner))
                return
            if self.held:
                self.delayed.append((job, runner, shared, answer))
                return
            with contextlib.suppress(KeyError, ValueError):
                self.waiting[job.start_group].remove(job)
            if flight is not None:
                flight.task.cancel()
            flight = self._start(job, runner)
        self.asked += 1
        flight.task.add_done_callback(lambda _: self._guard(self._answer, job, runner, answer, time.perf_counter()))
        self._pump()

    def _answer(self, job: Job, runner: Any, answer: queue.SimpleQueue[Result], ended_at: float) -> None:
        # Without a run in flight the window is full, or there is no more to do
        if self.running and self._is_busy() and time.perf_counter() - ended_at < _BURST:
            self.loop.call_later(_QUIET / 5, self._guard, self._answer, job, runner, answer, ended_at)
            return
        self.asked -= 1
        answer.put(self._fetched(job, runner))

    def _is_busy(self) -> bool:
        """Return whether a short run ended within the last _QUIET seconds, so that more are likely to end soon."""
        return time.perf_counter() - self.short_ended < _QUIET

    def _fetched(self, job: Job, runner: Any) -> Result:
        ready = self.done.pop(job, None)
        if ready is not None and ready.runner is runner:
            return ready
        return self._result_without_run(job, runner)

    def _pump(self) -> None:
        self.starved = 0
        if not self.asked and self.done and self._is_busy():
            return  # pytest has enough to do until it asks again
        while len(self.running) - len(self.parked) < self.concurrency and not (
            self.stopped or self.drained or self.held or self.over
        ):
            heads = [jobs for group, jobs in self.waiting.items() if jobs and self._may_start(group)]
            # By pytest's order over all groups: the run that pytest needs next must not wait behind later ones
            first = min(heads, key=lambda jobs: jobs[0].rank, default=None)
            if first is None:
                break
            if first[0].rank > self.at + self.window + len(self.parked):
                self.starved = first[0].rank
                break
            if first[0].rank > self._next_suspect():
                break  # until pytest is past it, and asks for the next
            job = first.popleft()
            self._start(job, self.runners[job.start_group])

    def park(self, run: asyncio.Task[Any], *, waits: bool) -> None:
        """Record that a run starts (`waits`) or stops to wait for a batch.

        A run does not count as in flight until all its waits have ended.
        """
        before = self.parked.pop(run, 0)
        after = before + (1 if waits else -1)
        if after:
            self.parked[run] = after
        if run in self.groups and not (before and after):
            self.busy[self.groups[run]] += -1 if waits else 1
        if waits:
            self._pump()

    def _next_suspect(self) -> float:
        while self.suspects and self.suspects[0] < self.at:
            self.suspects.popleft()
        if self.suspects:
            return self.suspects[0]
        return math.inf

    def _may_start(self, group: Hashable) -> bool:
        return group in self.runners and self.busy.get(group, 0) < self.limits.get(group, self.concurrency)

    def _start(self, job: Job, runner: Any) -> _Flight:
        calls = RunCalls()
        calls.task = task = self.loop.create_task(self._run(job, runner, calls))
        flight = self.running[job] = _Flight(task, runner, calls, time.perf_counter())
        self.busy[job.start_group] = self.busy.get(job.start_group, 0) + 1
        self.groups[flight.task] = job.start_group
        flight.task.add_done_callback(lambda _: self._guard(self._landed, job, flight))
        return flight

    def _landed(self, job: Job, flight: _Flight) -> None:
        self.busy[job.start_group] -= 1
        del self.groups[flight.task]
        if self.running.get(job) is flight:
            del self.running[job]
        self._pump()
        self._tell_idle()

    async def _run(self, job: Job, runner: Any, calls: RunCalls) -> None:
        RUN.set(calls)
        begun = time.perf_counter()
        try:
            result = await self.work(job, runner)
        except asyncio.CancelledError:
            result = self._result_without_run(job, runner)
            if not (self.stopped or self.ending or self.over or job in self.cancelled):
                result = Result(error=RuntimeError("the run was cancelled from within, by an agent or a library"))
        # The loop was closed under the task: no waiter is left
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  # pytest raises it in the item's setup
            result = Result(error=error)
        ended = time.perf_counter()
        if ended - begun < _QUIET:
            self.short_ended = ended
        result.runner, result.seconds = runner, result.seconds or ended - begun
        flight = self.running.get(job)
        if flight is not None and flight.task is asyncio.current_task():  # not replaced meanwhile
            self.done[job] = result

    def _result_without_run(self, job: Job, runner: Any) -> Result:
        if self.death:
            return Result(runner, error=RuntimeError(self.death))
        if reason := self.cancelled.get(job) or self.drained or self.stopped:
            return Result(runner, not_run=reason)
        return Result(runner, error=RuntimeError("the run was not made: the session had ended, or was about to"))


class RunLimits:
    """Numbers of runs that `workers` processes make at once: `total` of all runs, and `profiles` by run profile.

    A worker gets an even share, `concurrency` of all runs. Uneven shares are rounded up, and the controller admits no
    more runs than the limit.
    """

    def __init__(self, total: int, profiles: Mapping[str, int], workers: int) -> None:
        self.total, self.workers = total, workers
        self.profiles = {name: limit for name, limit in profiles.items() if limit < total}
        self.concurrency = self.share(total)

    def retune(self, total: int) -> None:
        """Replace all limits by one of all runs."""
        self.total, self.profiles = total, {}
        self.concurrency = self.share(total)

    def share(self, limit: int) -> int:
        """Return one worker's part of a limit, at least 1."""
        return -(-limit // self.workers)

    def within(self, work: Work, throttles: WorkerThrottles) -> Work:
        """Return a function that waits for the limits over all workers and then does the work."""
        total = self._uneven(throttles, "session", self.total)
        profiles = {name: self._uneven(throttles, name, limit) for name, limit in self.profiles.items()}

        if not (total or any(profiles.values())):
            return work
        from pytest_agentbench.models.limits import Admission

        async def limited(job: Job, runner: Any) -> Result:
            async with AsyncExitStack() as stack:
                for throttle in (*total, *profiles.get(job.plan.run_profile.run_profile_id, ())):
                    await stack.enter_async_context(Admission(throttle))
                return await work(job, runner)

        return limited

    def _uneven(self, throttles: WorkerThrottles, name: str, limit: int) -> tuple[Throttling, ...]:
        if limit % self.workers == 0:
            return ()
        return (throttles.throttle(("runs", name, limit), (limit, None, None)),)
