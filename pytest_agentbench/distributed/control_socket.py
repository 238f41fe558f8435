"""The socket of a live session, by which `agentbench sessions` lists and operates it.

A session has one socket, `.control/NAME.sock` in its output folder, where NAME is the name of its journal. A client
sends one line, a JSON object, and gets one line back:

    {"v": 1, "id": 7, "do": "cancel", "run": "refund[gpt4o]"}  ->  {"v": 1, "id": 7, "ok": true, "cancelled": ["..."]}
                                          ->  {"v": 1, "ok": false, "error": {"kind": "not_found", "message": "..."}}

Only the user who runs the session can open it: the folder has mode 0700, the socket 0600, and both ends look at the
other's user if the system tells it.

Addresses of sockets have 107 bytes at most (103 on macOS). On Linux the folder is named by its descriptor, so that
the output folder's path may have any length. Elsewhere the socket of a longer path is in a folder of its own below
XDG_RUNTIME_DIR or the folder of temporary files, and `NAME.json` has its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_agentbench.reports.journal import FOLDER as JOURNALS
from pytest_agentbench.reports.journal import is_held

FOLDER = ".control"
"""The folder of sockets below the output folder."""
_SUFFIX, _FACTS_SUFFIX = ".sock", ".json"
_MOST_CLIENTS = 8
"""Connections at the same time; further ones are closed."""
_SECONDS = 10.0
"""Seconds within which a whole line is received, or sent."""
_RETRY_SECONDS = 0.01
_MAX_REQUEST, _MAX_REPLY = 2**16, 2**24
"""Bytes."""
_MAX_ADDRESS = 100
"""Bytes of a socket's path that all systems accept."""
_DESCRIPTORS = "/proc/self/fd"
"""Where the system names open folders by their descriptors, if it does."""

VERSION = 1
"""Version of requests and answers."""
ErrorKind = Literal["bad_request", "unknown_command", "not_found", "ambiguous", "too_late", "not_permitted", "broken"]
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class RequestRefused(Exception):
    """A request that the session does not carry out. Its text is the reason for people."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ControlSocket:
    """The session's end: a daemon thread that waits for clients, and one for each of up to `_MOST_CLIENTS` of them.

    `answer` is called by one thread at a time. Its errors are sent to the client. `facts` are written next to the
    socket, in `NAME.json`, for programs that look for sessions.
    """

    def __init__(self, output: Path, name: str, answer: Answer, facts: Mapping[str, Any]) -> None:
        """Open the socket of the session `name`. Raises OSError if that is impossible here."""
        self._answer, self._over = answer, threading.Event()
        self._answering, self._clients = threading.Lock(), threading.BoundedSemaphore(_MOST_CLIENTS)
        self.path = (output / FOLDER / (name + _SUFFIX)).absolute()
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._name = name + _SUFFIX
        self._folder = -1
        try:
            with contextlib.suppress(FileExistsError):
                (output / FOLDER).mkdir(mode=0o700)
            self._folder = _open_folder(output)
            _remove_stale(output, self._folder)
            self._bind()
            self._listener.listen(_MOST_CLIENTS)
            self._describe({"v": VERSION, **facts, "socket": str(self.path)})
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._serve, name="agentbench-control", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more, and remove the socket."""
        if self._over.is_set():
            return
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()
        if self._folder >= 0:
            for name in (self._name, self._facts_name):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._folder)
            os.close(self._folder)
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    def _bind(self) -> None:
        address = _short_address(self.path, self._folder)
        if address is None:
            self._elsewhere = tempfile.TemporaryDirectory(prefix="agentbench-", dir=os.environ.get("XDG_RUNTIME_DIR"))
            self.path = Path(self._elsewhere.name) / "control.sock"
            address = str(self.path)
        self._listener.bind(address)
        os.chmod(address, 0o600)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or no descriptor is free for a while
                self._over.wait(1)
                continue
            if self._clients.acquire(blocking=False):
                threading.Thread(target=self._serve_client, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve_client(self, connection: socket.socket) -> None:
        """Answer one request, and close the connection after twice `_SECONDS` at the latest."""
        try:
            with connection, contextlib.suppress(OSError):
                reply = self._answer_client(connection)
                if reply is not None:
                    connection.settimeout(_SECONDS)
                    _send(connection, reply)
        finally:
            self._clients.release()

    def _answer_client(self, connection: socket.socket) -> dict[str, Any] | None:
        """Return the reply to the client's request, None if the client is another user. Raises OSError."""
        refusal, request = None, {}
        try:
            request = _receive(connection, _MAX_REQUEST)
        except (ValueError, RecursionError) as error:
            refusal = _describe_refusal("bad_request", f"expected one line with a JSON object: {error}")
        with self._answering:
            if not _is_own(connection):
                return None
            return refusal or self._reply(request)

    @property
    def _facts_name(self) -> str:
        return self._name.removesuffix(_SUFFIX) + _FACTS_SUFFIX

    def _describe(self, facts: Mapping[str, Any]) -> None:
        """Write the session's facts next to the socket, for this user alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(self._facts_name, flags, 0o600, dir_fd=self._folder), "w", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        identity = {"id": request.pop("id")} if "id" in request else {}
        return {"v": VERSION, **identity, **self._find_reply(request)}

    def _find_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if (version := request.pop("v", None)) != VERSION:
                raise RequestRefused("bad_request", f"v: found {version!r}, expected {VERSION}")
            return {"ok": True, **self._answer(request)}
        except RequestRefused as refusal:
            return _describe_refusal(refusal.kind, str(refusal))
        except Exception as error:  # noqa: BLE001  # a client's request must not end the session's control
            return _describe_refusal("broken", f"the session cannot answer: {error!r}")


def ask_session(output: Path, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the live session `name`.

    Raises RequestRefused if it does not carry the request out, OSError if it has no socket, does not answer, or is
    another user's, and ValueError for an answer that is not JSON.
    """
    folder = _open_folder(output)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            _connect(connection, _find_address(output, folder, name))
            if not _is_own(connection):
                raise PermissionError("another user listens at the session's socket")
            _send(connection, {"v": VERSION, **request})
            answer = _receive(connection, _MAX_REPLY)
    finally:
        os.close(folder)
    if answer.get("ok") is not True:
        error = answer.get("error") or {}
        raise RequestRefused(error.get("kind", "broken"), str(error.get("message", "it sent no answer")))
    return {field: value for field, value in answer.items() if field not in ("v", "id", "ok")}


def _connect(connection: socket.socket, address: str) -> None:
    """Connect to a session's socket. Raises OSError."""
    until = time.monotonic() + _SECONDS
    while True:
        try:
            connection.connect(address)
        except BlockingIOError:  # other clients wait: with a time limit the system does not wait for its queue itself
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _open_folder(output: Path) -> int:
    """Return a descriptor of the folder of sockets. Raises OSError unless it is this user's alone."""
    folder = os.open(output / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(folder)
        raise PermissionError(f"{output / FOLDER}: others may open it; remove it")
    return folder


def _short_address(path: Path, folder: int) -> str | None:
    """Return an address of the path in the folder of sockets, None if it would be too long."""
    if os.path.isdir(by_descriptor := f"{_DESCRIPTORS}/{folder}"):
        return f"{by_descriptor}/{path.name}"
    if len(os.fsencode(path)) <= _MAX_ADDRESS:
        return str(path)
    return None


def _find_address(output: Path, folder: int, name: str) -> str:
    """Return the address of a session's socket. Raises OSError, and ValueError if its facts cannot be read."""
    address = _short_address((output / FOLDER / (name + _SUFFIX)).absolute(), folder)
    if address is not None:
        return address
    facts = os.open(name + _FACTS_SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        return str(json.loads(os.read(facts, _MAX_REQUEST))["socket"])
    finally:
        os.close(facts)


def _describe_refusal(kind: ErrorKind, message: str) -> dict[str, Any]:
    return {"v": VERSION, "ok": False, "error": {"kind": kind, "message": message}}


def _remove_stale(output: Path, folder: int) -> None:
    """Remove sockets of sessions that were killed: nobody holds the locks of their journals."""
    for name in os.listdir(folder):
        session, dot, suffix = name.rpartition(".")
        if dot + suffix in (_SUFFIX, _FACTS_SUFFIX) and not is_held(output / JOURNALS / f"{session}.journal"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _is_own(connection: socket.socket) -> bool:
    """Return whether the other end is this user's; True if the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):  # not Linux: the modes decide alone
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def _send(connection: socket.socket, value: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(value).encode() + b"\n")


def _receive(connection: socket.socket, most: int) -> dict[str, Any]:
    """Return the object of the next line. Raises ValueError for anything else, and for more than `most` bytes.

    Raises OSError if the other end closes the connection without a byte, or takes longer than `_SECONDS` for all.
    """
    line = b"".join(_read_line(connection, most))
    if not line:
        raise ConnectionError(f"it closed the connection: it serves {_MOST_CLIENTS} clients at a time; try again")
    if len(line) > most:
        raise ValueError(f"found more than {most:,} bytes")
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"found a {type(value).__name__}")
    return value


def _read_line(connection: socket.socket, most: int) -> Iterator[bytes]:
    """Yield the parts of a line, up to a byte more than `most`."""
    deadline = time.monotonic() + _SECONDS  # of the line, not of each part: a client may send byte by byte
    while most >= 0:
        if (seconds := deadline - time.monotonic()) <= 0:
            raise TimeoutError(f"found no whole line within {_SECONDS:g} s")
        connection.settimeout(seconds)
        part = connection.recv(min(most + 1, 2**16))
        yield part
        most -= len(part)
        if not part or part.endswith(b"\n"):
            return
