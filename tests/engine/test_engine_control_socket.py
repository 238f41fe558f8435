"""The socket of a live session: who can open it, and what a client's mistakes do to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from support.other_user import as_nobody, needs_root

from pytest_agentbench.distributed import control_socket
from pytest_agentbench.distributed.control_socket import FOLDER, ControlSocket, RequestRefused, ask_session
from pytest_agentbench.reports.journal import Journal

NAME = "20261128T100000000000Z-0123abcd"
SOCKET = f"{NAME}.sock"


@pytest.fixture
def control(tmp_path):
    control = ControlSocket(tmp_path, NAME, lambda request: {"got": request}, {})
    yield control
    control.close()


def test_a_request_gets_the_answer(control, tmp_path):
    assert ask_session(tmp_path, NAME, {"do": "state"}) == {"got": {"do": "state"}}


def test_a_request_of_another_version_is_refused(control, tmp_path):
    with pytest.raises(RequestRefused, match="v: found 2, expected 1") as refused:
        ask_session(tmp_path, NAME, {"v": 2, "do": "state"})
    assert refused.value.kind == "bad_request"


def test_only_its_user_can_open_it(control, tmp_path):
    folder = tmp_path / FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / SOCKET).stat().st_mode) == 0o600


@needs_root
def test_another_user_gets_no_answer(tmp_path, monkeypatch):
    busy, go = threading.Event(), threading.Event()

    def answer(request):
        busy.set()
        go.wait(10)
        return {}

    control = ControlSocket(tmp_path, NAME, answer, {})
    first = threading.Thread(target=ask_session, args=(tmp_path, NAME, {}))
    first.start()
    # While the session is busy with one client, which is this user, the other user only waits: a process has one user
    assert busy.wait(10)
    monkeypatch.chdir(tmp_path / FOLDER)
    Path().chmod(0o755)
    Path(SOCKET).chmod(0o666)  # so that the other end's user alone decides
    with socket.socket(socket.AF_UNIX) as connection:
        with as_nobody():
            connection.connect(SOCKET)
        go.set()
        with contextlib.suppress(ConnectionError):
            connection.sendall(b'{"do": "state"}\n')
            assert connection.recv(100) == b""
    first.join(10)
    control.close()


def test_a_folder_that_others_may_open_is_refused(control, tmp_path):
    (tmp_path / FOLDER).chmod(0o750)
    with pytest.raises(PermissionError, match="others may open it"):
        ask_session(tmp_path, NAME, {})
    with pytest.raises(PermissionError, match="others may open it"):
        ControlSocket(tmp_path, "other", lambda request: {}, {})


def test_a_link_to_another_folder_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        ControlSocket(tmp_path, NAME, lambda request: {}, {})
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="long paths need /proc")
def test_the_output_folder_may_have_a_long_path(tmp_path):
    output = tmp_path / ("long" * 40) / ("longer" * 30)
    output.mkdir(parents=True)
    control = ControlSocket(output, NAME, lambda request: {"got": request}, {})
    try:
        assert ask_session(output, NAME, {"a": 1}) == {"got": {"a": 1}}
    finally:
        control.close()


def test_a_long_path_needs_no_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr(control_socket, "_DESCRIPTORS", tmp_path / "missing")  # as on macOS
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    output = tmp_path / ("long" * 40)
    output.mkdir()
    control = ControlSocket(output, NAME, lambda request: {"got": request}, {})
    try:
        assert json.loads((output / FOLDER / f"{NAME}.json").read_text())["socket"] == str(control.path)
        assert stat.S_IMODE(control.path.parent.stat().st_mode) == 0o700
        assert ask_session(output, NAME, {"a": 1}) == {"got": {"a": 1}}
    finally:
        control.close()
    assert not control.path.parent.exists()


@pytest.mark.parametrize("sent", [b"", b"no JSON\n", b"[1]\n", b"[" * 60_000 + b"\n", b"x" * 70_000], ids=range(5))
def test_a_malformed_request_does_not_end_it(control, tmp_path, monkeypatch, sent):
    monkeypatch.chdir(tmp_path / FOLDER)  # an address has 107 bytes at most
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionError):
        connection.connect(SOCKET)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        reply = connection.recv(500)
        assert reply == b"" or json.loads(reply)["error"]["kind"] == "bad_request"
    assert ask_session(tmp_path, NAME, {}) == {"got": {}}


def test_the_answer_to_a_malformed_request_names_its_mistake(control, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / FOLDER)
    with connect() as connection:
        connection.sendall(b"[1]\n")
        error = json.loads(connection.recv(500))["error"]
    assert error == {"kind": "bad_request", "message": "expected one line with a JSON object: found a list"}


def connect() -> socket.socket:
    """Return a connection to the socket in the current folder."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(SOCKET)
    return connection


def test_a_client_that_sends_byte_by_byte_is_cut_off_in_time(control, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / FOLDER)
    monkeypatch.setattr(control_socket, "_SECONDS", 0.1)
    sent = 0
    with connect() as connection, contextlib.suppress(ConnectionError):
        while not select.select([connection], [], [], 0.01)[0] and sent < 1000:
            sent += connection.send(b" ")
    assert 0 < sent < 1000


def test_many_clients_long_lines_and_dead_readers_do_not_end_it(tmp_path, monkeypatch):
    big = "x" * 2**22  # more than the system buffers, so that it waits for a reader
    control = ControlSocket(tmp_path, NAME, lambda request: {"got": big if "big" in request else request}, {})
    monkeypatch.chdir(tmp_path / FOLDER)
    monkeypatch.setattr(control_socket, "_SECONDS", 0.1)
    with contextlib.ExitStack() as clients:
        dead_reader = clients.enter_context(connect())
        dead_reader.sendall(b'{"v": 1, "big": true}\n')
        assert ask_session(tmp_path, NAME, {}) == {"got": {}}
        with connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(b"x" * 2**22)
        for _ in range(100):
            clients.enter_context(connect())
    until = time.monotonic() + 10
    while time.monotonic() < until:  # the first clients are still counted for a moment
        with contextlib.suppress(ConnectionError, BlockingIOError):
            assert ask_session(tmp_path, NAME, {}) == {"got": {}}
            break
    else:
        raise AssertionError("it does not answer any more")
    control.close()


def test_a_client_waits_while_others_are_in_the_queue(tmp_path, monkeypatch):
    control = ControlSocket(tmp_path, NAME, lambda request: {"got": request}, {})
    monkeypatch.chdir(tmp_path / FOLDER)
    real, refusals = socket.socket.connect, iter(range(3))

    def connect_late(connection: socket.socket, address: str) -> None:
        if next(refusals, None) is not None:
            raise BlockingIOError
        real(connection, address)

    monkeypatch.setattr(socket.socket, "connect", connect_late)
    try:
        assert ask_session(tmp_path, NAME, {}) == {"got": {}}
        assert next(refusals, None) is None
    finally:
        control.close()


def test_an_error_is_an_answer(tmp_path):
    def fail(request):
        raise KeyError("do")

    control = ControlSocket(tmp_path, NAME, fail, {})
    try:
        with pytest.raises(RequestRefused, match=r"the session cannot answer: KeyError\('do'\)") as refused:
            ask_session(tmp_path, NAME, {})
        assert refused.value.kind == "broken"
    finally:
        control.close()


def test_it_is_gone_after_its_session(control, tmp_path):
    control.close()
    assert [*(tmp_path / FOLDER).iterdir()] == []
    with pytest.raises(FileNotFoundError):
        ask_session(tmp_path, NAME, {})


def test_sockets_of_killed_sessions_are_removed_and_others_stay(tmp_path):
    journal = Journal(tmp_path, {}, print)
    running = ControlSocket(tmp_path, journal.path.stem, lambda request: {}, {})
    killed = ControlSocket(tmp_path, NAME, lambda request: {}, {})
    new = ControlSocket(tmp_path, "new", lambda request: {}, {})
    try:
        assert {path.stem for path in (tmp_path / FOLDER).iterdir()} == {journal.path.stem, "new"}
    finally:
        for each in (running, killed, new, journal):
            each.close()
