"""`agentbench trust`: what is granted, how long, and who may write it down; what other commands say of guests."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_agentbench.cli import main
from pytest_agentbench.config.grants import decide_trust

CASE = """\
schema_version: 1
case_id: theirs
title: T
runner: {type: llm_probe}
input: {messages: [{role: user, content: x}]}
sandbox: {dockerfile: Dockerfile}
"""
PROFILE = "schema_version: 1\nrun_profile_id: wide\ntitle: W\nsandbox: local\n"


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody else's below the user's root; the user's configuration lies in `home`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / "cases" / "suites").mkdir(parents=True)
    (project / "cases" / "suites" / "own.yaml").write_text("schema_version: 1\nsuite_id: own\ntitle: O\nmodels: []\n")
    (project / "pytest.ini").write_text("[pytest]\n")
    folder = project / "cases" / "vendor"
    for name, text in {
        "run_profiles/wide.yaml": PROFILE,
        "models.yaml": "schema_version: 1\nmodels: [{model_id: gpt-4o, base_url: 'http://127.0.0.1:1'}]\n",
        "one/test.yaml": CASE,
        "one/Dockerfile": "FROM a:1\n",
        "one/data.txt": "x",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def trusts(guest: Path) -> bool:
    return decide_trust(guest.parents[1]).covers(str(guest))


def test_a_grant_is_shown_kept_listed_and_taken_back(guest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "pytest-agentbench" / "trust.json"
    assert main(["trust", str(guest)]) == 0
    shown = capsys.readouterr().out
    for text in ("one/Dockerfile", "run_profiles/wide.yaml", "sandbox.type: found 'local'", "found 'Dockerfile'"):
        assert text in shown
    assert "only a guest's file says how to reach" in shown
    assert "data.txt" not in shown
    assert "agentbench trust" not in shown
    assert trusts(guest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["trust.json"]
    assert main(["trust", "--list"]) == 0
    assert f"{guest}: 5 files" in capsys.readouterr().out
    assert main(["trust", "--revoke", str(guest)]) == 0
    assert main(["trust", "--revoke", str(guest)]) == 1
    assert not trusts(guest)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "one" / "Dockerfile").write_text("FROM b:1\n"), "one/Dockerfile has changed"),
        (lambda folder: (folder / "servers.yaml").write_text(""), "servers.yaml is new"),
        (lambda folder: (folder / "one" / "data.txt").unlink(), "one/data.txt is gone"),
        (lambda folder: os.mkfifo(folder / "fifo"), "fifo is new"),
        (lambda folder: (folder / "link").symlink_to("/etc"), "link is new"),
    ],
)
def test_a_changed_file_ends_a_grant(guest: Path, capsys: pytest.CaptureFixture[str], change, told) -> None:  # type: ignore[no-untyped-def]
    main(["trust", str(guest)])
    (guest / "cassettes").mkdir()  # what sessions write changes nothing
    (guest / "cassettes" / "a-r1.yaml").write_text("x")
    assert trusts(guest)
    change(guest)
    assert not trusts(guest)
    capsys.readouterr()
    main(["trust", "--list"])
    assert f"ended: {told}" in capsys.readouterr().out
    assert main(["validate", str(guest)]) == 1
    assert f"its grant ended: {told}" in capsys.readouterr().out


def test_grants_that_others_may_write_are_refused(guest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trust", str(guest)])
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "pytest-agentbench" / "trust.json"
    path.chmod(0o666)
    assert main(["validate", str(guest)]) == 1
    assert "others may write" in capsys.readouterr().err
    path.chmod(0o600)
    path.write_text('{"version": 2, "grants": []}')
    assert main(["trust", "--list"]) == 1
    assert "found version 2, expected 1" in capsys.readouterr().err


def test_commands_and_sessions_have_the_same_guests(guest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """validate, list and doctor read the pytest configuration of the project as pytest does."""
    project = guest.parents[1]

    def refused() -> list[bool]:
        found = []
        for command in ("validate", "list", "doctor"):
            main([command, str(guest), *(["--json"] if command == "doctor" else [])])
            captured = capsys.readouterr()
            found.append("is not trusted" in captured.out + captured.err or "expected at most" in captured.err)
        return found

    assert refused() == [True, True, True]
    (project / "pytest.ini").write_text("[pytest]\nagentbench_trust = cases/vendor\n")
    assert refused() == [False, False, False]
    (project / "pytest.ini").write_text(f"[pytest]\nagentbench_configs = {guest.relative_to(project)}\n")
    assert refused() == [False, False, False]
    (project / "pytest.ini").unlink()
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\nagentbench_trust = ["cases/vendor"]\n')
    assert refused() == [False, False, False]
