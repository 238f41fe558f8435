"""Run a program in a run's sandbox, and forward a port of its loopback to the socket of the run's gateway.

Usage: relay.py PORT SOCKET MARK PROGRAM [ARGUMENT ...]; with port 0 nothing listens. relay.mjs does the same in Node,
for images without Python. This file runs in any Python 3 and imports nothing of this package.

The program's stderr passes through immediately. Its stdout follows at the end in one piece after a line MARK, so that
no log line can be part of it. The exit code is the program's, 128 + n after signal n, and 127 if it cannot be started.

With `streams` as MARK stdin and stdout pass through while the program runs. At the end of stdin the program's stdin is
closed. If the program does not exit, it gets SIGTERM and then SIGKILL. The last line of stderr is the exit status.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO

HELD_OPEN_SECONDS = 1.0  # time for processes that outlive the program and hold its stdout open
MOST_BYTES = 16 * 2**20  # of stdout; its end is kept
CHUNK = 65536
STREAMS = "streams"
PATIENCE_SECONDS = 2.0  # between the end of stdin, SIGTERM and SIGKILL


def pump(source: socket.socket, target: socket.socket) -> None:
    """Forward the data of one end to the other until its end."""
    try:
        while True:
            data = source.recv(CHUNK)
            if not data:
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            end.close()


def serve(listener: socket.socket, path: str) -> None:
    """Forward each connection to the socket, with a thread for each direction."""
    while True:
        inner, _ = listener.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def keep(stream: IO[bytes], written: bytearray) -> None:
    """Read a stream to its end into `written`, and drop all but its last bytes."""
    while True:
        data = os.read(stream.fileno(), CHUNK)
        if not data:
            return
        written += data
        # At twice the size, so that a long output is moved once for each 16 MB and not for each piece
        if len(written) > 2 * MOST_BYTES:
            del written[:-MOST_BYTES]


def copy(source: int, target: int) -> None:
    """Write the data of one descriptor to the other until its end, or until the target is closed."""
    try:
        while True:
            data = os.read(source, CHUNK)
            if not data:
                return
            write_all(target, data)
    except OSError:
        return


def write_all(target: int, data: bytes) -> None:
    """Write all data, also if the program, which shares the descriptor of stderr, does not let it block."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(target, left) :]
        except BlockingIOError:
            select.select([], [target], [])


def feed(child: "subprocess.Popen[bytes]") -> None:
    """Forward stdin to the program. At its end close the program's stdin, and end the program with its group."""
    assert child.stdin is not None
    copy(0, child.stdin.fileno())
    child.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        time.sleep(PATIENCE_SECONDS)
        try:
            os.killpg(child.pid, number)
        except OSError:
            return


def run_with_streams(argv: "tuple[str, ...]") -> int:
    """Run the program with stdin and stdout passed through, and return its exit code."""
    try:
        # In a session, so that signals reach the processes that it has started, too
        child = subprocess.Popen(argv, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        print(f"relay: {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127
    assert child.stdout is not None
    reader = threading.Thread(target=copy, args=(child.stdout.fileno(), 1), daemon=True)
    reader.start()
    threading.Thread(target=feed, args=(child,), daemon=True).start()
    code = child.wait()
    reader.join(HELD_OPEN_SECONDS)
    if code < 0:
        code = 128 - code
    write_all(2, f"relay: {argv[0]} ended with status {code}\n".encode(errors="surrogateescape"))
    return code


def main(port: str, path: str, mark: str, *argv: str) -> None:
    """Run the program, and exit with its status."""
    os.makedirs(os.environ["HOME"], exist_ok=True)
    if port != "0":
        listener = socket.create_server(("127.0.0.1", int(port)))
        threading.Thread(target=serve, args=(listener, path), daemon=True).start()
    if mark == STREAMS:
        os._exit(run_with_streams(argv))
    written, code = bytearray(), 127
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        print(f"relay: {argv[0]}: {error.strerror}", file=sys.stderr)
    else:
        assert child.stdout is not None
        reader = threading.Thread(target=keep, args=(child.stdout, written), daemon=True)
        reader.start()
        code = child.wait()
        # Not to the end: a process that the program left running may hold its stdout open for ever
        reader.join(HELD_OPEN_SECONDS)
        if code < 0:  # ended by a signal
            code = 128 - code
    sys.stderr.flush()
    # Often stderr and stdout are one, and programs of Node and Bun make their stderr non-blocking
    write_all(1, b"\n%s\n" % mark.encode() + bytes(written[-MOST_BYTES:]))
    # Without the interpreter's shutdown, because daemon threads may still be forwarding
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
