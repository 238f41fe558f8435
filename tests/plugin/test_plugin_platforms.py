"""Sessions on Windows: without cases they work, with cases one line says what to do. Linux and macOS are supported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_agentbench.errors import WINDOWS as LINE

SITE = """
import sys

BLOCKED = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}

class Windows:
    def find_spec(self, name, path=None, target=None):
        if name in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import io, os, subprocess, tempfile  # which look at what there is as they are imported
io._WindowsConsoleIO = io.FileIO  # of pytest's own
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_PATH", "O_CLOEXEC", "statvfs", "geteuid"):
    if hasattr(os, name):
        delattr(os, name)
for name in BLOCKED:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Windows())
sys.platform = "win32"
"""
"""A sitecustomize that takes away what Python has on POSIX systems only."""


@pytest.fixture
def on_windows(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(SITE)
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "site")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", *args]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    return run


def case(folder: Path) -> None:
    (folder / "cases/one").mkdir(parents=True)
    (folder / "cases/one/test.yaml").write_text(
        "schema_version: 1\ncase_id: one\ntitle: One\nrunner: {type: callable}\n"
    )


@pytest.mark.slow
def test_a_session_without_cases_works_on_windows(on_windows):
    ended = on_windows("pytest", "-p", "pytest_agentbench.plugin")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "1 passed" in ended.stdout
    assert LINE not in ended.stdout
    for command in (("pytest", "-p", "pytest_agentbench.plugin", "--help"), ("pytest_agentbench.cli", "--help")):
        ended = on_windows(*command)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "agentbench" in ended.stdout
    ended = on_windows("pytest_agentbench.cli", "validate")
    assert (ended.returncode, ended.stderr) == (2, f"{LINE}\n")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["found", "named", "written by hand"])
def test_a_session_with_a_case_names_wsl_on_windows(on_windows, tmp_path, kind):
    if kind == "written by hand":
        text = 'import pytest\n\n@pytest.mark.agentbench("one")\ndef test_one(agentbench_run):\n    pass\n'
        (tmp_path / "test_one.py").write_text(text)
    else:
        case(tmp_path)
    named = ["cases/one/test.yaml"] if kind == "named" else []
    ended = on_windows("pytest", "-p", "pytest_agentbench.plugin", *named)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert (ended.stdout + ended.stderr).count(LINE) == 1
    assert "Traceback" not in ended.stdout + ended.stderr
