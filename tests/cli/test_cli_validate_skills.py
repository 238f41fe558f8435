"""`agentbench validate` on skills: folders below a path, and a single SKILL.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.cli import main


def write_skill(folder: Path, *keys: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "SKILL.md"
    path.write_text("\n".join(["---", *keys, "---", "Instructions."]), encoding="utf-8")
    return path


def test_wrong_names_and_missing_descriptions_are_errors_and_other_names_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_skill(tmp_path / "skills/pdf", "name: pdf", "description: Read PDF files.", "licence: MIT")
    other = write_skill(tmp_path / "skills/notes", "name: memos", "description: Write notes.", "allowed-tools: [Bash]")
    wrong = write_skill(tmp_path / "skills/Big", "name: Big Signs")
    assert main(["validate", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{wrong}:2:1: description: missing; add it",
        f"{wrong}:2:7: name: found 'Big Signs', expected up to 64 lower-case letters, digits and single '-' between "
        "them",
        f"{other}:2:7: warning: name: found 'memos', expected the folder's name 'notes': some programs find no other",
        f"{other}:4:16: warning: allowed-tools: found ['Bash'], expected a text",
        "3 files checked, 0 cases: 2 errors, 2 warnings",
    ]
    assert main(["validate", str(other)]) == 0
    assert main(["validate", str(wrong.parent)]) == 1
