"""The socket of a live session, by which `agentbench sessions` lists and operates it.

A session has one socket, `.control/NAME.sock` in its output folder, where NAME is the name of its journal. A client
sends one line, a JSON object, and gets one line back:

    {"v": 1, "id": 7, "do": "cancel", "run": "refund[gpt4o]"}  ->  {"v": 1, "id": 7, "ok": true, "cancelled": ["..."]}
                                          ->  {"v": 1, "ok": false, "error": {"kind": "not_found", "message": "..."}}

Only the user who runs the session can open it: the folder has mode 0700, the socket 0600, and both ends look at the
other's user if the system tells it.

Addresses of sockets have 107 bytes at most (103 on macOS). On Linux the folder is named by its descriptor, so that
the output folder's path may have any length.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
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
"""Seconds for which one end waits for the other."""
_MAX_REQUEST, _MAX_REPLY = 2**16, 2**24
"""Bytes."""

VERSION = 1
"""Of requests and answers."""
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
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._name = name + _SUFFIX
        self._folder = -1
        try:
            with contextlib.suppress(FileExistsError):
                (output / FOLDER).mkdir(mode=0o700)
            self._folder = _open_folder(output)
            _remove_stale(output, self._folder)
            self._listener.bind(_name_address(output, self._folder, self._name))
            os.chmod(self._name, 0o600, dir_fd=self._folder)
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
        """Answer one request, and close the connection. A client that sends nothing costs `_SECONDS`."""
        try:
            with connection, contextlib.suppress(OSError, ValueError, RecursionError):
                connection.settimeout(_SECONDS)
                request = _receive(connection, _MAX_REQUEST)
                with self._answering:
                    if not _is_own(connection):
                        return
                    reply = self._reply(request)
                _send(connection, reply)
        finally:
            self._clients.release()

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
            kind, message = refusal.kind, str(refusal)
        except Exception as error:  # noqa: BLE001  # a client's request must not end the session's control
            kind, message = "broken", f"the session cannot answer: {error!r}"
        return {"ok": False, "error": {"kind": kind, "message": message}}


def ask_session(output: Path, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the live session `name`.

    Raises RequestRefused if it does not carry the request out, OSError if it has no socket, does not answer, or is
    another user's, and ValueError for an answer that is not JSON.
    """
    folder = _open_folder(output)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(_name_address(output, folder, name + _SUFFIX))
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


def _open_folder(output: Path) -> int:
    """Return a descriptor of the folder of sockets. Raises OSError unless it is this user's alone."""
    folder = os.open(output / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(folder)
        raise PermissionError(f"{output / FOLDER}: others may open it; remove it")
    return folder


def _name_address(output: Path, folder: int, name: str) -> str:
    if os.path.isdir(by_descriptor := f"/proc/self/fd/{folder}"):
        return f"{by_descriptor}/{name}"
    return str(output / FOLDER / name)


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
    """Return the object of the next line. Raises ValueError for anything else, and for more than `most` bytes."""
    line = b"".join(_read_line(connection, most))
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("found no JSON object")
    return value


def _read_line(connection: socket.socket, most: int) -> Iterator[bytes]:
    while part := connection.recv(min(most, 2**16)):
        yield part
        most -= len(part)
        if part.endswith(b"\n") or most <= 0:
            return
