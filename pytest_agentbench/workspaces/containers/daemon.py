"""The daemon that makes containers: whether one answers, and calls to it off the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache, cached_property, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.workspaces.containers.engines import Service, find_engine, start_service

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from docker import DockerClient

T = TypeVar("T")

_SOCKET = "unix:///var/run/docker.sock"
_ASK_SECONDS = 5
_CALL_SECONDS = 60
_CONNECTIONS = 64
_PODMAN_HEADER = "Libpod-Api-Version"


def docker_problem() -> str | None:
    """Return why there are no containers here, with what to do; None where a daemon answers. Asked once an address."""
    return _problem(_docker_address())


class Daemon:
    """A way to one daemon: threads that call it through the docker SDK, started as they are needed.

    The SDK is imported, and the daemon asked, at the first call; that of `program`, where it is given, is podman's or
    docker's as `engines` finds it. Safe in any thread. The end of the process waits for none of the threads.
    """

    def __init__(self, program: str | None = None) -> None:
        self.program = program or "docker"
        self._is_stock = program is None
        self._connecting = threading.Lock()
        self._connection: tuple[DockerClient, bool] | None = None
        self._service: Service | None = None
        self._address = ""
        self._threads_changing = threading.Lock()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = self._busy = 0

    @property
    def client(self) -> DockerClient:
        """Return the SDK's client. Raises SandboxError where no daemon answers, UnavailableError without a program."""
        return self._connect()[0]

    @property
    def is_podman(self) -> bool:
        """Return whether podman's service answers, whatever the program or the socket is called. Raises as `client`."""
        return self._connect()[1]

    @property
    def socket_path(self) -> str:
        """Return where the daemon listens, once `client` has been asked for."""
        return self._address.removeprefix("unix://")

    @property
    def api_version(self) -> str:
        """Return the version of the HTTP interface that both sides speak."""
        return self.client.api.api_version

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Return what the daemon says of itself: `NCPU`, the processors that containers can have, and more."""
        found: Mapping[str, Any] = self.client.info()
        return found

    @property
    def is_used(self) -> bool:
        """Return whether anything was called yet."""
        return self._threads > 0

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function that waits, on one of the threads. What the SDK raises comes as SandboxError."""
        future: Future[T] = Future()
        self._calls.put(partial(self._work, future, function, args))
        # As many threads as calls under way: in a pool of fixed size a command would wait behind others' images.
        with self._threads_changing:
            self._busy += 1
            if self._busy <= self._threads:
                return future
            self._threads += 1
        threading.Thread(target=self._serve, name="agentbench-docker", daemon=True).start()
        return future

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Do the same and await it. It runs to its end, though its caller be cancelled."""
        return await asyncio.wrap_future(self.submit(function, *args))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise SandboxError for what the SDK raises within, for who calls it in a thread of their own."""
        try:
            yield
        except Exception as error:
            if (failure := self._as_failure(error)) is error:
                raise
            raise failure from error

    def close(self) -> None:
        """End connections, idle threads, and a service that was started here. A later call begins anew."""
        with self._threads_changing:
            ended, self._threads = self._threads, 0
        for _ in range(ended):
            self._calls.put(None)
        with self._connecting:
            connection, self._connection = self._connection, None
            service, self._service = self._service, None
        if connection is not None:
            connection[0].close()
        if service is not None:
            service.end()

    def _connect(self) -> tuple[DockerClient, bool]:
        with self._connecting:
            if self._connection is None:
                self._address = self._find_address()
                self._connection = _connect(self.socket_path)
            return self._connection

    def _find_address(self) -> str:
        if self._is_stock:
            return _docker_address()
        engine = find_engine(self.program)
        address = engine.find_address()
        if address is None:
            self._service = self._service or start_service(engine)
            return self._service.address
        if (problem := _problem(address)) is not None:
            raise UnavailableError(problem)
        return address

    def _serve(self) -> None:
        for work in iter(self._calls.get, None):
            work()
            with self._threads_changing:
                self._busy -= 1

    def _work(self, future: Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future is told
            future.set_exception(self._as_failure(error))

    def _as_failure(self, error: BaseException) -> BaseException:
        """Return SandboxError for what the SDK raises, and any other exception as it is."""
        from docker.errors import APIError, DockerException

        if isinstance(error, APIError):
            return SandboxError(f"{self.program}: {error.explanation or error}")
        if isinstance(error, (DockerException, OSError)):  # the HTTP client's errors are OSErrors too
            return SandboxError(f"{self.program}: {error}")
        return error


def _docker_address() -> str:
    return os.environ.get("DOCKER_HOST") or _SOCKET


def _connect(path: str) -> tuple[DockerClient, bool]:
    """Return a client, and whether it is podman's service that answers it. Raises SandboxError."""
    from http.client import HTTPException

    from docker import DockerClient
    from docker.constants import DEFAULT_DOCKER_API_VERSION
    from docker.utils import version_lt

    try:
        head = _ping(path)
    except (OSError, HTTPException) as error:
        raise SandboxError(f"the docker daemon at {path} does not answer: {error}") from error
    spoken = head.getheader("Api-Version") or DEFAULT_DOCKER_API_VERSION
    # Never newer than the SDK was written for: its calls would lack what the newer interface demands.
    version = spoken if version_lt(spoken, DEFAULT_DOCKER_API_VERSION) else DEFAULT_DOCKER_API_VERSION
    client = DockerClient(f"unix://{path}", version=version, timeout=_CALL_SECONDS, max_pool_size=_CONNECTIONS)
    client.api.trust_env = False  # to iterate over the environment fails where another thread changes it
    return client, head.getheader(_PODMAN_HEADER) is not None


def _ping(path: str) -> HTTPResponse:
    """Return the head of the daemon's answer. Raises OSError, http.client.HTTPException."""
    from http.client import HTTPResponse  # 10 ms that a session without containers does not pay

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ASK_SECONDS)
        connection.connect(path)
        # 1.0, so that the daemon ends the connection and sends no chunks.
        connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        with HTTPResponse(connection) as response:
            response.begin()
            return response


@cache
def _problem(address: str) -> str | None:
    from http.client import HTTPException

    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return (
            f"the docker daemon at {address} may be another machine's, and containers share the workspace's folder "
            "with this one: set DOCKER_HOST to a daemon of this machine, as unix:///path/to/docker.sock"
        )
    try:
        status = _ping(path).status
    except PermissionError:
        return f"no permission to use the docker daemon at {path}: add this user to the socket's group"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"no docker daemon answers at {path} ({reason}): start docker, or set DOCKER_HOST"
    return None if status == 200 else f"the docker daemon at {path} answers with HTTP status {status}"
