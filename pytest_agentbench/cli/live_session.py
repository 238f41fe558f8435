"""A session while it runs, as the data of a page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from pytest_agentbench.cli.page_labels import MOST_BYTES, LabelledRun, PageLabels
from pytest_agentbench.cli.serve import foreign_problem
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.html.details import deciding_options, run_detail
from pytest_agentbench.reports.html.page import page_data
from pytest_agentbench.reports.journal import JournalReader, journals
from pytest_agentbench.reports.progress import Progress
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import format_seconds
from pytest_agentbench.terminal_text import count_text

State = Literal["waiting", "running", "ended", "killed"]

PATIENCE = 5
"""The report is made anew when this many times as long has passed as it took last: a large one costs little CPU."""


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON to send. Two of one `tag` are the same."""

    tag: str
    body: bytes


class LiveData:
    """The sessions of an output folder, read while they run. Safe to use from any thread.

    The name of a session is that of its journal; None means the newest one at the time of the call.
    """

    def __init__(self, output: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._output, self._clock = output, clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}

    def data(self, name: str | None) -> Answer | None:
        """Return the page's data: `page_data` and `live`; None if there is no session of that name.

        `live` has `state`, `text` (a line that describes it), `planned`, `reported`, `made` (a larger number than
        `reported` waits for pytest's report), `in_flight` (counts, null if unknown), `running` (names of the first runs
        in flight) and `sessions`, the newest first: `{href, text, shown}`.
        """
        with self._lock:
            sessions = self._list_sessions()
            session = self._find_session(sessions, name)
            if session is None:
                if name is not None:
                    return None
                return self._make_waiting()
            return session.answer(self._clock(), [_make_link(each, each is session) for each in sessions])

    def detail(self, name: str | None, nodeid: str) -> Answer | None:
        """Return the stored run and verdict of a reported run; None if there is no such session or run.

        Runs that the page has listed are returned without waiting for a report in the making.
        """
        row = self._row(name, nodeid)
        return None if row is None else _make_answer(run_detail(row, self._output))

    def labelled_run(self, name: str | None, nodeid: str) -> LabelledRun | None:
        """Return a reported run for its label; None if there is no such session or run."""
        row = self._row(name, nodeid)
        if row is None:
            return None
        # Only rows of judged runs name the run: that of any other is looked up in the store.
        stored = row.get("run_id") or (run_detail(row, self._output)["run"] or {}).get("run_id")
        return LabelledRun(row, stored)

    def _row(self, name: str | None, nodeid: str) -> Row | None:
        # Without the lock: a click on a run does not wait for a report of 10,000 runs in the making. `data` replaces
        # `_sessions` and never changes it, so that this may read it at the same time.
        row = self._find_row([each for each in self._sessions.values() if each.reader.session], name, nodeid)
        if row is None:
            with self._lock:
                row = self._find_row(self._list_sessions(), name, nodeid)
        return row

    def _find_row(self, sessions: list[_Session], name: str | None, nodeid: str) -> Row | None:
        session = self._find_session(sessions, name)
        # One look-up: another thread may replace the rows meanwhile.
        if session is None or (placed := session.reader.rows.get(nodeid)) is None:
            return None
        return placed[1]

    def _list_sessions(self) -> list[_Session]:
        """Return the sessions that there are, the newest first, read up to now."""
        paths = {path.name.removesuffix(".journal"): path for path in journals(self._output)}
        known = self._sessions
        # Readers are kept, so that a journal is read on from its last position.
        self._sessions = {name: known.get(name) or _Session(name, path, self._output) for name, path in paths.items()}
        return [session for session in self._sessions.values() if session.read()]

    def _find_session(self, sessions: list[_Session], name: str | None) -> _Session | None:
        return next((each for each in sessions if name in (None, each.name)), None)

    def _make_waiting(self) -> Answer:
        line = f"waiting for a session that writes to {self._output}"
        live = {"state": "waiting", "text": line, "planned": None, "reported": 0, "made": 0, "in_flight": None}
        return _make_answer(_make_page(build_report([], {}), self._output, {**live, "running": [], "sessions": []}))


class _Session:
    """One session, followed."""

    def __init__(self, name: str, path: Path, output: Path) -> None:
        self.name, self.reader, self._output = name, JournalReader(path), output
        self._made: tuple[tuple[int, State, str], Answer] | None = None
        self._next = 0.0

    def read(self) -> bool:
        """Read the new lines of the journal. Return whether the session has data to show."""
        try:
            self.reader.read()
        except (OSError, ConfigError):  # gone since, or of another version
            return False
        return bool(self.reader.session)

    def answer(self, now: float, links: list[dict[str, Any]]) -> Answer:
        """Return the page's data, as it is, or as it was in this state while making it anew would cost too much."""
        state = self.state()
        key = (self.reader.taken, state, json.dumps(links))
        if self._made is not None:
            made, answer = self._made
            # A change of state is shown at once, even if the report is expensive.
            if made == key or (made[1] == state and now < self._next):
                return answer
        begun = time.perf_counter()
        answer = _make_answer(
            _make_page(self.reader.report(), self._output, {**self._describe_live(state), "sessions": links})
        )
        # The pause grows with the cost: a report of 10,000 runs every two seconds would use a whole
        # processor.
        self._made, self._next = (key, answer), now + PATIENCE * (time.perf_counter() - begun)
        return answer

    def state(self) -> State:
        """Return whether it runs."""
        if self.reader.is_over:
            return "ended"
        if self.reader.is_live():
            return "running"
        return "killed"

    def line(self, state: State) -> str:
        """Return the state as people read it."""
        reader = self.reader
        reported, planned = len(reader.rows), reader.planned
        if state == "ended":
            return f"ended with exit status {reader.session.get('exit_status')}: {count_text(reported, 'run')}"
        if state == "killed":
            verb = "was" if reported == 1 and planned is None else "were"
            return f"killed when {_count(reported, planned)} {verb} reported; start it again: stored runs are reused"
        progress = self._measure_progress()
        line = f"running: {_count(progress.done, planned)}"
        if reader.in_flight:
            line += f", {reader.in_flight:,} in flight"
        if progress.seconds_left:
            line += f", about {format_seconds(progress.seconds_left)} left"
        return line

    def _describe_live(self, state: State) -> dict[str, Any]:
        reader = self.reader
        return {
            "state": state,
            "text": self.line(state),
            "planned": reader.planned,
            "reported": len(reader.rows),
            "made": self._measure_progress().done,
            "in_flight": reader.in_flight,
            "running": reader.running,
        }

    def _measure_progress(self) -> Progress:
        reader = self.reader
        done = max(len(reader.rows), reader.ended or 0)
        reused = sum(bool(row["reused"]) for _, row in reader.rows.values())
        total = max(done, reader.planned or 0)
        return Progress(done, total, reader.in_flight or 0, reader.seconds, reused=reused)


def _make_page(report: dict[str, Any], output: Path, live: dict[str, Any]) -> dict[str, Any]:
    options = deciding_options(report["session"]["command"])
    details = {"kind": "live", "output": str(output), "base": None, "options": options}
    return {**page_data(report), "details": details, "live": live}


def _count(runs: int, planned: int | None) -> str:
    return count_text(runs, "run") if planned is None else f"{runs:,} of {planned:,} runs"


def _make_link(session: _Session, shown: bool) -> dict[str, Any]:
    began = str(session.reader.session.get("started_at"))[:19].replace("T", " ")
    return {"href": f"/session/{session.name}/", "text": f"{began} UTC: {session.state()}", "shown": shown}


def _make_answer(value: Any) -> Answer:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Answer(sha256(body).hexdigest()[:32], body)


_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # not allowed in the page's own policy, a <meta>
}


class _SessionName(StringConvertor):
    """The name of a journal. Starlette's own convertor takes any text without a slash."""

    regex = "[0-9A-Za-z-]{1,60}"


register_url_convertor("agentbench_session", _SessionName())
_FOLDERS = ("", "/session/{name:agentbench_session}")


def live_app(data: LiveData, page: bytes, labels: PageLabels) -> ASGIApp:
    """Return the app that serves GET / and /session/NAME/, each with its `data.json` and `run.json?nodeid=`.

    Its POST `label` stores the label of a run. No request can name a file.
    """

    def refuse(status: int, reason: str) -> Response:
        return PlainTextResponse(f"{reason}\n", status, _SAFE)

    async def send_page(request: Request) -> Response:
        return Response(page, headers=_SAFE, media_type="text/html")

    async def send_data(request: Request) -> Response:
        return send(request, await run_in_threadpool(data.data, named(request)))

    async def send_run(request: Request) -> Response:
        nodeid = request.query_params.get("nodeid", "")
        return send(request, await run_in_threadpool(data.detail, named(request), nodeid))

    async def store_label(request: Request) -> Response:
        if not labels.admits(request.headers.get("x-agentbench-token", "")):
            return refuse(403, "Not stored: open the page at the address that agentbench watch has printed.")
        sent = b""
        async for chunk in request.stream():
            sent += chunk
            if len(sent) > MOST_BYTES:
                return refuse(413, "Not stored: the label is too long.")
        outcome = await run_in_threadpool(labels.store, sent, partial(data.labelled_run, named(request)))
        return PlainTextResponse(outcome.text, outcome.status, _SAFE)

    def named(request: Request) -> str | None:
        name: str | None = request.path_params.get("name")
        return name

    def send(request: Request, answer: Answer | None) -> Response:
        if answer is None:
            return refuse(404, "there is no such session or run")
        tag = f'"{answer.tag}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**_SAFE, "ETag": tag})
        return Response(answer.body, headers={**_SAFE, "ETag": tag}, media_type="application/json")

    async def lacking(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(404, "there is nothing here")(scope, receive, send)

    endpoints = {"": send_page, "data.json": send_data, "run.json": send_run}
    routes = [Route(f"{folder}/{name}", endpoint) for folder in _FOLDERS for name, endpoint in endpoints.items()]
    routes += [Route(f"{folder}/label", store_label, methods=["POST"]) for folder in _FOLDERS]
    router = Router(routes, redirect_slashes=False, default=lacking)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        app: ASGIApp = router
        if (problem := foreign_problem(scope)) is not None:
            app = refuse(403, problem)
        elif scope["method"] not in (methods := ("POST",) if scope["path"].endswith("/label") else ("GET", "HEAD")):
            app = refuse(405, f"only {methods[0]} is served")
        await app(scope, receive, send)

    return guarded
