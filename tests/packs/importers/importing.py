"""Import files of other tools into a project; `foreign/` has some files that these tools wrote."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.cli import main

FOREIGN = Path(__file__).parent / "foreign"


@dataclass(frozen=True)
class Imported:
    """The result of a call of the command: `out` and `err` are its output without the project's path."""

    code: int
    out: str
    err: str
    folder: Path

    def case(self, name: str) -> Any:
        """Return a `test.yaml` as data."""
        return yaml.safe_load((self.folder / name / "test.yaml").read_text(encoding="utf-8"))

    @property
    def files(self) -> list[str]:
        """Return every file by its path in the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


class Importing:
    """A project. `call` imports a file into `cases/it`; `agentbench validate` may only miss judges there."""

    def __init__(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.project = project
        self._capsys = capsys
        (project / "pytest.ini").write_text("[pytest]\n")

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the project, and return its path."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def call(self, tool: str, file: Path) -> Imported:
        folder = self.project / "cases" / "it"
        code = main(["import", tool, str(file), "-o", str(folder)])
        captured = self._capsys.readouterr()
        if code == 0 or any(folder.rglob("test.yaml")) or any(folder.rglob("*.jsonl")):
            main(["validate", str(folder)])
            told = self._capsys.readouterr().out.splitlines()[:-1]
            # What only a judge can decide is told where the import counts it
            left = "for a judge" in captured.out and "nothing decides this case"
            assert all(" warning: " in line or (left and left in line) for line in told), told
        place = f"{file.parent}/"
        return Imported(code, captured.out.replace(place, ""), captured.err.replace(place, ""), folder)

    def run(self, *arguments: str) -> str:
        """Run pytest on the imported cases, and return its output."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "cases", *arguments]
        return subprocess.run(command, cwd=self.project, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def importing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importing:
    """Return a new project."""
    return Importing(tmp_path, capsys)
