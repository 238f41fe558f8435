"""The session's streams, after their descriptors were closed behind its back."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pytest_agentbench.engine.user_code import Streams

streams = Streams(captured=True)
streams.guard()
for word in ("one", "two"):
    os.close(1)
    print(word, flush=True)
    os.close(2)
    sys.stderr.write(word.upper() + "\\n")
    sys.stderr.flush()
streams.close()
print("three")
"""


@pytest.mark.parametrize("unbuffered", [(), ("-u",)], ids=["buffered", "unbuffered"])
def test_text_written_after_a_closed_descriptor_arrives_once(unbuffered):
    done = subprocess.run([sys.executable, *unbuffered, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\nthree\n", "ONE\nTWO\n")
