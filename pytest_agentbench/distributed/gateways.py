"""Report workers on other machines that cannot start, or are lost: which and why, never a wait for ever."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Generator, Sequence
from typing import Any

import pytest

START_SECONDS = 180.0
"""How long one gateway may take to answer, and its worker to be ready for collection."""


class Gateways:
    """A watch over the start and the loss of workers in xdist's controller. Local workers are left to xdist."""

    def __init__(self) -> None:
        self._starting: list[Any] = []
        self._timers: dict[str, threading.Timer] = {}
        self._late_reason: str | None = None
        self._wanted = 0
        self._collected: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None, object, object]:
        """Start all gateways one after the other. Raises UsageError for the first that does not start."""
        try:
            return (yield)
        except (Exception, KeyboardInterrupt) as error:
            # Ctrl-C of a person is theirs; ours comes as the same exception, after `_interrupt` has noted why
            if not self._starting or (isinstance(error, KeyboardInterrupt) and self._late_reason is None):
                raise
            raise pytest.UsageError(_describe_failed_start(self._starting[0], self._late_reason or error)) from error
        finally:
            self._starting.clear()
            self._stop_timer("gateway")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Note the gateways that xdist starts from here on, one after the other."""
        self._starting.extend(specs)
        self._wanted = len(specs)
        self._await_gateway()

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Wait for the next gateway: this one is up, but its worker is not ready yet."""
        if self._is_awaited(node):
            self._start_timer(node.gateway.id, self._report_not_ready, node)
        if self._starting:
            self._starting.pop(0)
            self._await_gateway()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Stop waiting for the worker: it is ready."""
        self._stop_timer(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Note a worker that has collected.

        Once all workers have collected, the cases are dealt, and other workers can take over a lost worker's share.
        """
        self._collected.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Raise Exit if a worker on another machine is lost before all have collected: a new one would be lost too."""
        self._stop_timer(node.gateway.id)
        if error and self._is_awaited(node):
            pytest.exit(_describe_failed_start(node.gateway.spec, error), returncode=pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Raise Exit where xdist could not replace a worker that was lost."""
        from execnet import HostNotFound, RemoteError

        try:
            return (yield)
        except (OSError, EOFError, HostNotFound, RemoteError) as error:
            if not _is_of_start(error):
                raise
            pytest.exit(
                f"a worker was lost and could not be started again: {_describe_reason(error)}; finished runs are "
                "stored. --max-worker-restart=0 lets the other workers take over its items",
                returncode=pytest.ExitCode.TESTS_FAILED,
            )
        finally:
            for name in tuple(self._timers):
                self._stop_timer(name)

    def _is_awaited(self, node: Any) -> bool:
        # Once all have collected, the items are dealt, and a worker that is lost is made up for by the others
        return not node.gateway.spec.popen and len(self._collected) < self._wanted

    def _await_gateway(self) -> None:
        self._stop_timer("gateway")
        if self._starting and not self._starting[0].popen:
            self._start_timer("gateway", self._interrupt)

    def _interrupt(self) -> None:
        """Send a signal to the main thread: it waits for bytes of a socket, and nothing else ends that."""
        self._late_reason = f"no answer within {START_SECONDS:g} s; a socket server serves one worker at a time"
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _report_not_ready(self, node: Any) -> None:
        # The way that xdist hears of a worker's death, from the timer's thread into its own queue
        node.notify_inproc("errordown", node=node, error=f"not ready within {START_SECONDS:g} s")

    def _start_timer(self, name: str, late: Any, *args: Any) -> None:
        timer = self._timers[name] = threading.Timer(START_SECONDS, late, args)
        timer.daemon = True
        timer.start()

    def _stop_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()


def _is_of_start(error: BaseException) -> bool:
    """Return whether xdist raised the error while it started a worker."""
    # A failed start and a lost connection raise the same types: only the frames differ.
    return any(frame.f_code.co_name == "setup_node" for frame, _ in traceback.walk_tb(error.__traceback__))


def _describe_failed_start(spec: Any, error: object) -> str:
    keys = ("popen", "ssh", "socket", "via", "chdir")
    where = "//".join(f"{key}={getattr(spec, key)}" for key in keys if getattr(spec, key))
    hint = ""
    if "rsync root" in str(error):
        hint = "; with workers elsewhere name no files: use testpaths, a suite or -k, and write options as --name=value"
    return f"worker {spec.id} ({where}) cannot start: {_describe_reason(error)}{hint}"


def _describe_reason(error: object) -> str:
    """Return the reason in one line: the last line of a worker's traceback."""
    if isinstance(error, EOFError):
        return "the connection was closed; the output of the other end may contain the reason"
    said = ["", *str(error).strip().splitlines()][-1].strip()
    if isinstance(error, OSError) or not said:
        return f"{type(error).__name__}: {said}"
    return said
