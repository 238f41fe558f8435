"""Run tests with pytest and report each result. Started as a separate program: `python -I -B -c THIS_TEXT`.

It runs on the Python of a sandbox: standard library only, Python 3.8 or later. Its stdin is one line of JSON, `{token,
tests, collect, pythonpath, plugins, config, seconds}`. With `collect` no test is run, and the reply names all tests of
the files. Its stdout is two lines. The first is `{token}`, before any code of the workspace can run: a missing or wrong
second line is then the doing of the code under test. The second is `{token, loaded, tests, problems, ended, exit,
stopped, output}`.

There are two processes. The one that the caller started never imports or runs code of the workspace. Only it has the
caller's stdin and stdout, and it reads the token after it has forked the other process, which runs pytest and the code
under test. It reports the events that it received, and how the other process really ended.

Each event is signed, with its number, by a key that the other process reads before any test is imported. A process
that only has the pipe can therefore add, omit or repeat nothing. Code that tests import shares the memory with the key.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import selectors
import signal
import sys
import time
from importlib.machinery import PathFinder
from typing import Any, NoReturn

_OUTPUT = 16_384
_MESSAGE = 2_000
_MAX_MESSAGES = 50
_MAX_REPORTED = 32 * 2**20
_MAX_EVENT = 65_536
_MAX_NAMES = 2 * 2**20
_LAST_READS = 32
_PR_SET_DUMPABLE = 4
_WORST_LAST = ("passed", "xpassed", "xfailed", "skipped", "failed")


def main() -> None:
    """Answer the request on stdin."""
    _protect_pipes()
    wake, wakened = os.pipe()
    os.set_blocking(wakened, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Wakes `select` when the child ends: processes that it started may keep the other pipes open.
    signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
    asked, asking = os.pipe()
    events, reporting = os.pipe()
    output, printing = os.pipe()
    # Before the request is read: the child never has the token of the reply in its memory.
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become_tests(asked, reporting, printing, (wake, wakened, asking, events, output))
    for theirs in (asked, reporting, printing):
        os.close(theirs)
    request = json.loads(sys.stdin.buffer.readline())
    token = request.pop("token")
    _send(1, {"token": token})
    key = secrets.token_bytes(32)
    _send(asking, {**request, "key": key.hex()})
    os.close(asking)
    reply = _follow_tests(child, (events, output, wake), time.monotonic() + request["seconds"], _TestsReport(key))
    _send(1, {"token": token, **reply})


def _protect_pipes() -> None:
    """Keep this user's other processes from reading this one's memory and taking its open files: Linux can."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError("prctl(PR_SET_DUMPABLE) failed")


# -- the process that the caller started


def _follow_tests(child: int, sources: tuple[int, int, int], deadline: float, heard: _TestsReport) -> dict[str, Any]:
    """Return the events of the tests' process until it has ended.

    The process is killed at the deadline, and if it sends too much.
    """
    events, output, wake = sources
    selector = selectors.DefaultSelector()
    for source in sources:
        os.set_blocking(source, False)
        selector.register(source, selectors.EVENT_READ)
    stopped, status = None, None
    while status is None:
        left = deadline - time.monotonic()
        if left <= 0 or heard.too_much:
            stopped = "reported too much" if heard.too_much else "time-out"
            _kill(child)
            status = os.waitpid(child, 0)[1]
            break
        for key, _ in selector.select(left):
            if key.fd == wake:
                _read(wake)
                ended, ending = os.waitpid(child, os.WNOHANG)
                if ended:
                    status = ending
            elif data := _read(key.fd):
                heard.take(data, printed=key.fd == output)
            elif data is not None:
                selector.unregister(key.fd)
    _kill(child)
    for source in (events, output):  # what is in the pipes yet; who else holds them is not waited for
        for _ in range(_LAST_READS):
            heard.take(_read(source) or b"", printed=source == output)
    return {**heard.told(), "exit": _exit_code(status), "stopped": stopped}


class _TestsReport:
    """Report of the tests' process so far. Nothing of it is trusted to have a form, or an end."""

    def __init__(self, key: bytes) -> None:
        self._key, self._signed = key, 0
        self._line, self._printed, self._size, self._names = b"", b"", 0, 0
        self._loaded = False
        self._ended: int | None = None
        self._tests: dict[str, dict[str, Any]] = {}
        self._problems: list[tuple[str, str]] = []
        self._messages = 0

    @property
    def too_much(self) -> bool:
        return self._size > _MAX_REPORTED or len(self._line) > _MAX_EVENT or self._names > _MAX_NAMES

    def take(self, data: bytes, *, printed: bool) -> None:
        if printed:
            self._printed = (self._printed + data)[-_OUTPUT:]
            return
        self._size += len(data)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._event(line)

    def told(self) -> dict[str, Any]:
        tests = {}
        for name, test in self._tests.items():
            outcome = test["outcome"]
            if outcome == "passed" and test["phases"] != {"setup", "call", "teardown"}:
                outcome = "unfinished"
            tests[name] = {"outcome": outcome, "message": test["message"]}
        output = self._printed.decode("utf-8", "replace")
        facts = {"loaded": self._loaded, "ended": self._ended}
        return {**facts, "tests": tests, "problems": self._problems, "output": output}

    def _event(self, line: bytes) -> None:
        signature, _, text = line.partition(b" ")
        if not hmac.compare_digest(signature, _signature(self._key, self._signed, text)):
            self._problem("", "a report does not come from the program that runs the tests")
            return
        self._signed += 1
        try:
            event = json.loads(text)
            kind = event["event"]
            if kind == "loaded":
                self._loaded = True
            elif kind == "collected":
                self._test(event["test"])
            elif kind == "report":
                self._report(event)
            elif kind == "problem":
                self._problem(_require_text(event["where"]), event["message"])
            elif kind == "ended":
                self._ended = int(event["value"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            self._problem("", "the tests' process reported something that cannot be read")

    def _test(self, name: Any) -> dict[str, Any]:
        name = _require_text(name)
        if name not in self._tests:
            self._names += len(name)
            self._tests[name] = {"outcome": "not run", "phases": set(), "message": ""}
        return self._tests[name]

    def _report(self, event: dict[str, Any]) -> None:
        test = self._test(event["test"])
        test["phases"].add(event["when"])
        rank = _WORST_LAST.index(event["outcome"])
        if test["outcome"] == "not run" or rank > _WORST_LAST.index(test["outcome"]):
            test["outcome"] = _WORST_LAST[rank]
            test["message"] = self._message(event["message"]) if rank else ""

    def _problem(self, where: str, message: Any) -> None:
        if len(self._problems) < _MAX_MESSAGES:
            self._problems.append((where, self._message(message)))

    def _message(self, message: Any) -> str:
        self._messages += 1
        if self._messages <= _MAX_MESSAGES:
            return _require_text(message)[-_MESSAGE:]
        return ""


def _require_text(value: Any) -> str:
    """Return the value as a text that UTF-8 can carry. Raises TypeError for another thing."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value.encode("utf-8", "replace").decode("utf-8")


def _read(source: int) -> bytes | None:
    try:
        return os.read(source, 65_536)
    except BlockingIOError:
        return None


def _kill(child: int) -> None:
    """Kill the process and the rest of its process group."""
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:  # nobody is left
        return


def _exit_code(status: int) -> int:
    """Return the exit code, -n for signal n."""
    if os.WIFSIGNALED(status):
        return -os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _signature(key: bytes, number: int, text: bytes) -> bytes:
    return hmac.new(key, b"%d %s" % (number, text), "sha256").hexdigest().encode("ascii")


def _send(pipe: int, message: Any) -> None:
    try:
        _write(pipe, json.dumps(message).encode("ascii") + b"\n")
    except BrokenPipeError:  # the other side has ended, which says more
        return


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


# -- the process that runs the tests


class _Reports:
    """Signs events, and numbers them."""

    def __init__(self, pipe: int, key: bytes) -> None:
        self._pipe, self._key, self._signed = pipe, key, 0

    def add(self, event: str, **fields: Any) -> None:
        text = json.dumps({"event": event, **fields}).encode("ascii")
        line = _signature(self._key, self._signed, text) + b" " + text + b"\n"
        self._signed += 1
        try:
            _write(self._pipe, line)
        except OSError:  # the pipe was closed: without an end there is no result
            return


def _become_tests(asked: int, reporting: int, printing: int, others: tuple[int, ...]) -> NoReturn:
    reports: _Reports | None = None
    try:
        # A separate process group, so that all processes that tests start are killed together.
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for standard in (1, 2):
            os.dup2(printing, standard)
        for each in (printing, *others):
            os.close(each)
        with os.fdopen(asked, "rb") as request:
            options = json.loads(request.readline())
        reports = _Reports(reporting, bytes.fromhex(options.pop("key")))
        code = _run_tests(options, reports)
        sys.stdout.flush()
        sys.stderr.flush()
        reports.add("ended", value=code)
        os._exit(code)
    except BaseException as error:  # noqa: BLE001  this process must not go on as the other one
        if reports is not None:
            reports.add("problem", where="", message=f"{type(error).__name__}: {error}")
        os._exit(70)


def _run_tests(options: dict[str, Any], reports: _Reports) -> int:
    """Return pytest's exit code. pytest and its plugins are loaded before anything of the workspace can be imported."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    import pytest

    here = os.getcwd()
    folders = [os.path.normpath(os.path.join(here, folder)) for folder in options["pythonpath"]]
    wanted = tuple(options["tests"])
    # The solution's folders come after the standard library and before installed packages: its `json.py`
    # hides nothing that pytest needs.
    installed = next((at for at, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))

    class Reporter:
        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self) -> None:
            reports.add("loaded")
            sys.path[installed:installed] = folders

        def pytest_collectstart(self, collector: Any) -> None:
            if not isinstance(collector, pytest.Module):
                return
            root, shadow = _root_and_shadow(str(getattr(collector, "path", None) or collector.fspath))
            if shadow is not None:
                message = f"Python imports {shadow} in its place"
                reports.add("problem", where=collector.nodeid, message=message)
                pytest.exit(message, 1)
            if folders and sys.path[installed : installed + 1] != [root]:
                sys.path.insert(installed, root)

        def pytest_collectreport(self, report: Any) -> None:
            if report.outcome != "passed":
                reports.add("problem", where=report.nodeid, message=_tail(report))

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            if not options["collect"]:
                items[:] = [item for item in items if _is_wanted(item.nodeid, wanted)]

        def pytest_collection_finish(self, session: Any) -> None:
            for item in session.items:
                reports.add("collected", test=item.nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            outcome = report.outcome
            if hasattr(report, "wasxfail"):
                outcome = "xpassed" if outcome == "passed" else "xfailed"
            message = "" if outcome == "passed" else _tail(report)
            reports.add("report", test=report.nodeid, when=report.when, outcome=outcome, message=message)

    return int(pytest.main(_arguments(options, here), plugins=[Reporter()]))


def _arguments(options: dict[str, Any], here: str) -> list[str]:
    files = dict.fromkeys(name.partition("::")[0] for name in options["tests"])
    import_mode = "append" if options["pythonpath"] else "importlib"
    return [
        *("-c", options["config"] or os.devnull),
        *(f"--rootdir={here}", f"--confcutdir={here}", "--color=no", "-q", "-p", "no:cacheprovider"),
        f"--import-mode={import_mode}",
        *(part for plugin in options["plugins"] for part in ("-p", plugin)),
        *(["--collect-only"] if options["collect"] else []),
        *(name for name in files if os.path.exists(name)),
    ]


def _root_and_shadow(path: str) -> tuple[str, str | None]:
    """Return the folder that a test's file is imported from, and the file that hides it there, or None."""
    if os.path.basename(path) == "__init__.py":
        path = os.path.dirname(path)
    while True:
        folder, name = os.path.split(path)
        expected = os.path.join(path, "__init__.py") if os.path.isdir(path) else path
        found = PathFinder.find_spec(os.path.splitext(name)[0], [folder])
        if found is not None and found.origin != expected:
            return folder, found.origin
        if not os.path.isfile(os.path.join(folder, "__init__.py")):
            return folder, None
        path = folder


def _is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    """Return whether a test is named: itself, its function, its class, its file or a folder above."""
    return any(name == each or name.startswith((each + "[", each + "::", each.rstrip("/") + "/")) for each in wanted)


def _tail(report: Any) -> str:
    said = getattr(report, "longrepr", "") or getattr(report, "wasxfail", "")
    return str(said[-1] if isinstance(said, tuple) else said)[-_MESSAGE:]  # of a skip: file, line, reason


if __name__ == "__main__":
    main()
