from __future__ import annotations

import os
import re
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.reports.progress import Progress, StatusLine, status
from pytest_agentbench.reports.table import count_cells

pty = pytest.importorskip("pty")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

HALFWAY = Progress(done=50, total=100, in_flight=8, elapsed_seconds=120.0, cost_usd=1.25)
DRAWN = re.compile(r"\x1bD\x1b\[A\x1b7\x1b\[B\r\x1b\[J(.*?)\x1b8", re.DOTALL)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    resize(slave, 80)
    with open(slave, "w", encoding="utf-8") as stream:
        yield master, stream
    os.close(master)


def resize(descriptor, columns):
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def read_drawn(master, stream):
    """Return all that was written: one read of a terminal may return a part of it."""
    stream.write("\0")
    stream.flush()
    drawn = b""
    while not drawn.endswith(b"\0"):
        drawn += os.read(master, 4096)
    return drawn[:-1].decode()


def test_draws_below_and_puts_the_cursor_back(terminal):
    master, stream = terminal
    line = StatusLine(stream, colour=False, interval=0)
    line.show(lambda: HALFWAY)
    line.clear()
    line.clear()
    line.close()
    seen = read_drawn(master, stream)
    assert DRAWN.sub("", seen) == ""
    assert DRAWN.findall(seen) == ["━━━━━━━━──────── 50/100 done · 8 in flight · 2:00 left · $1.25", ""]


def test_follows_the_terminals_width(terminal):
    master, stream = terminal
    line = StatusLine(stream, colour=False, interval=0)
    for columns in (40, 20, 5):
        resize(stream.fileno(), columns)
        line.show(lambda: HALFWAY)
        (drawn,) = DRAWN.findall(read_drawn(master, stream))
        assert count_cells(drawn) < columns
    line.close()


def test_is_throttled_and_asks_for_progress_only_when_it_draws(terminal):
    _, stream = terminal
    asked = []
    line = StatusLine(stream, interval=60)
    for _ in range(100):
        line.show(lambda: asked.append(1) or HALFWAY)
    line.close()
    assert asked == [1]


def test_outlives_the_original_stream_and_a_lost_terminal(terminal):
    master, stream = terminal
    line = StatusLine(stream, interval=0)
    stream.flush()
    os.close(os.dup(stream.fileno()))
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # as pytest's capture does
    line.show(lambda: HALFWAY)
    assert b"50/100" in os.read(master, 4096)
    line.close()
    assert not line.live
    line.show(lambda: HALFWAY)


def test_is_silent_without_a_terminal(terminal, tmp_path, monkeypatch):
    _, stream = terminal
    with (tmp_path / "log").open("w") as log:
        assert not StatusLine(log).live
    assert not StatusLine(None).live
    monkeypatch.setenv("TERM", "dumb")
    assert not StatusLine(stream).live


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 999), st.floats(0, 1e6), st.none() | st.floats(0, 1e6),
    st.integers(0, 200), st.booleans(),
)  # fmt: skip
def test_never_takes_more_than_the_width(done, total, in_flight, elapsed, cost, width, unicode):
    progress = Progress(min(done, total), total, in_flight, elapsed, cost, partial_cost=True)
    line = status(progress, width, unicode=unicode)
    assert count_cells(line) <= width
    assert "\n" not in line
    assert unicode or line.isascii()


def test_time_left_ignores_runs_that_took_no_time():
    assert Progress(done=0, total=10, in_flight=1, elapsed_seconds=5).seconds_left is None
    assert Progress(done=90, total=100, in_flight=1, elapsed_seconds=5, reused=90).seconds_left is None
    assert Progress(done=92, total=100, in_flight=1, elapsed_seconds=4, reused=90).seconds_left == 16


CONFTEST = """
import pytest
from pytest_agentbench.reports.progress import Progress, StatusLine

LINES = []

def pytest_collection_finish(session):
    LINES.append(StatusLine.of_session(session.config))

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if LINES:
        LINES[0].show(lambda: Progress(done=1, total=3, in_flight=2, elapsed_seconds=1.0))
        LINES[0].clear()

def pytest_unconfigure():
    for line in LINES:
        line.close()
"""


@pytest.mark.parametrize(
    ("options", "drawn"),
    [((), True), (("-s",), False), (("-p", "xdist", "-n", "1"), False), (("-p", "no:terminal"), False)],
)
@pytest.mark.slow
def test_in_a_real_session(tmp_path, terminal, options, drawn):
    master, stream = terminal
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): print(n)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with subprocess.Popen(command, cwd=tmp_path, env=clean, stdout=stream.fileno(), stdin=subprocess.DEVNULL):
        stream.close()
        seen = "".join(iter(lambda: read(master), ""))
    assert (len(DRAWN.findall(seen)) >= 2) is drawn
    assert "\x1b7" not in DRAWN.sub("", seen)
    assert "no:terminal" in options or "3 passed" in seen
    if drawn:
        assert "test_it.py \x1b[32m.\x1b[0m\x1b[32m.\x1b[0m\x1b[32m.\x1b[0m" in DRAWN.sub("", seen)


def read(descriptor):
    try:
        return os.read(descriptor, 65536).decode()
    except OSError:  # the other side has closed: Linux says EIO
        return ""
