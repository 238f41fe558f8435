"""The scripts around commands in containers, run by this machine's shell."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from pytest_agentbench.workspaces.containers.commands import LEAVE

FILLS_ITS_OUTPUT = """
import os
os.set_blocking(1, False)
try:
    while os.write(1, b"x" * 2**10):
        pass
except BlockingIOError:
    pass
"""


@pytest.mark.slow
def test_the_mark_follows_an_output_that_fills_the_pipe_without_blocking() -> None:
    command = ["sh", "-c", LEAVE, "sh", "the-mark", sys.executable, "-c", FILLS_ITS_OUTPUT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        bound = threading.Timer(20, started.kill)  # without the mark nothing follows for ever
        bound.start()
        try:
            started.stderr.readline()  # the number of its session
            assert started.stderr.readline().startswith(b"0 ")
            time.sleep(0.1)
            output = b""
            while not output.endswith(b"the-mark") and (piece := started.stdout.read(1)):
                output += piece
        finally:
            bound.cancel()
            started.kill()
    assert output == b"x" * 2**16 + b"the-mark"
