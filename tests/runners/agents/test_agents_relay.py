"""The relay between a program in a sandbox and this machine, run as the sandbox runs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

RELAYS = files("pytest_agentbench.runners.agents")
PRINTS_MUCH = "import os; os.set_blocking(2, False); print('x' * 2**20 + 'end')"


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["a-mark", "streams"])
@pytest.mark.parametrize(("program", "relay"), [(sys.executable, "relay.py"), ("node", "relay.mjs")])
def test_all_output_arrives_if_the_program_makes_the_common_end_non_blocking(
    tmp_path: Path, program: str, relay: str, mark: str
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [program, str(RELAYS / relay), "0", "unused", mark, sys.executable, "-c", PRINTS_MUCH]
    # One pipe for both streams, as in a sandbox that merges them, and a reader that is slower than the program
    with subprocess.Popen(
        command,
        env={"HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as started:
        time.sleep(0.3)
        output = started.communicate(timeout=30)[0].decode()
    assert started.returncode == 0, output[-500:]
    assert output.count("x") == 2**20
    assert "xend\n" in output
