"""The tables once more, where the one who runs the session is no root: the kernel lets the watchdog see less."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support import outer_bound
from support.docker_here import needs_bubblewrap
from support.other_user import command_as, needs_root
from support.small_disk import small_disk

REPOSITORY = Path(__file__).parents[2]
USER = pwd.getpwnam("games").pw_uid  # with a name, which D-Bus asks for


@needs_root
@needs_bubblewrap
@pytest.mark.full
def test_the_attacks_as_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_bound, "SECONDS", 400)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        done = _attacks(Path(folder))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert " skipped" not in done.stdout.splitlines()[-1], done.stdout[-5_000:]


def _attacks(base: Path) -> subprocess.CompletedProcess[str]:
    base.chmod(0o711)
    (base / "stage").mkdir()
    options = ["-m", "", "-k", "bubblewrap or local", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rsf"]
    tests = [sys.executable, "-m", "pytest", "tests/attacks", "--basetemp", f"{base}/home/tests", *options]
    own = {"HOME": f"{base}/home", "TMPDIR": f"{base}/home", "PYTHONDONTWRITEBYTECODE": "1"}
    with small_disk(base / "home", "900m"):
        os.chown(base / "home", USER, USER)
        return outer_bound.bounded(
            subprocess.run,
            command_as(USER, tests, (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)), base / "stage"),
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], outer_bound.BOUNDED: "1", **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
