"""`agentbench trust` grants, ends and lists grants; other commands report on guests."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_agentbench.cli import main
from pytest_agentbench.config.grants import decide_trust, note_recording, written_folders
from pytest_agentbench.config.source_imports import import_sources_below, source_spec

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH

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
    """Another author's folder below the user's root; the user's configuration is in `home`."""
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


def test_a_grant_is_printed_stored_listed_and_revoked(guest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "pytest-agentbench" / "trust.json"
    assert main(["trust", str(guest)]) == 0
    shown = capsys.readouterr().out
    for text in ("one/Dockerfile", "run_profiles/wide.yaml", "sandbox.type: found 'local'", "found 'Dockerfile'"):
        assert text in shown
    assert "only a guest's file declares" in shown
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


def plant(name: str, content: str = "x", mode: int = 0o644) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        (folder / name).chmod(mode)

    return write


def plant_link(folder: Path) -> None:
    """A link to nothing, which was there when the folder was granted, leads to something now."""
    (folder.parents[2] / "elsewhere").mkdir()


CASSETTE = "schema_version: 1\ncase: theirs\nmodel: gpt\nrepetition: 1\nexchanges: []\ncomplete: true\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (plant("one/Dockerfile", "FROM b:1\n"), "one/Dockerfile has changed"),
        (plant("servers.yaml", ""), "servers.yaml is new"),
        (lambda folder: (folder / "one" / "data.txt").unlink(), "one/data.txt is gone"),
        (lambda folder: os.mkfifo(folder / "fifo"), "fifo is new"),
        (lambda folder: (folder / "link").symlink_to("/etc"), "link is new"),
        (plant("one/__pycache__/hook.cpython-311.pyc"), "one/__pycache__/hook.cpython-311.pyc is new"),
        (plant("one/hook.pyc"), "one/hook.pyc is new"),
        (plant("a.pth"), "a.pth is new"),
        (plant("cassettes/test.yaml", CASE), "cassettes/test.yaml is new"),
        (plant("one/cassettes/gpt-r1.yaml", CASSETTE), "one/cassettes/gpt-r1.yaml is new"),
        (plant("outputs/test.yaml", CASE), "outputs/test.yaml is new"),
        (plant("one/.git/hooks/post-checkout"), "one/.git/hooks/post-checkout is new"),
        (plant(".pytest_cache/v/conftest.py"), ".pytest_cache/v/conftest.py is new"),
        (plant("one/data.txt", "x", 0o755), "one/data.txt has changed"),
        (plant_link, "out has changed"),
    ],
)
def test_a_changed_file_ends_a_grant(guest: Path, capsys: pytest.CaptureFixture[str], change, told) -> None:  # type: ignore[no-untyped-def]
    (guest / "out").symlink_to("../../../elsewhere")
    main(["trust", str(guest)])
    assert trusts(guest)
    change(guest)
    assert not trusts(guest)
    capsys.readouterr()
    main(["trust", "--list"])
    assert f"ended: {told}" in capsys.readouterr().out
    assert main(["validate", str(guest)]) == 1
    assert f"its grant ended: {told}" in capsys.readouterr().out


def test_a_link_to_a_folder_elsewhere_is_not_granted(guest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The target's files could change without an end of the grant."""
    (guest / "inside").symlink_to("one")
    assert main(["trust", str(guest)]) == 0
    (guest / "out").symlink_to(guest.parents[1])
    assert main(["trust", str(guest)]) == 1
    assert "found a link to a folder elsewhere" in capsys.readouterr().err


def test_a_cassette_that_a_session_recorded_ends_no_grant_and_no_planted_one_becomes_one(guest: Path) -> None:
    main(["trust", str(guest)])
    path = guest / "one" / "cassettes" / "gpt-r1.yaml"
    path.parent.mkdir()
    for content in (CASSETTE, f"# again\n{CASSETTE}"):  # recorded, and recorded anew
        note_recording(path, content.encode())
        path.write_text(content)
        assert trusts(guest)
    assert (
        stat.S_IMODE((Path(os.environ["XDG_CONFIG_HOME"]) / "pytest-agentbench/recorded.txt").stat().st_mode) == 0o600
    )
    (guest / "cassettes").mkdir()
    (guest / "cassettes" / "gpt-r1.yaml").write_text(path.read_text())  # of another case
    assert not trusts(guest)
    (guest / "cassettes" / "gpt-r1.yaml").unlink()
    path.write_text(f"# planted\n{CASSETTE}")
    assert not trusts(guest)
    note_recording(path, f"# planted and written again\n{CASSETTE}".encode())
    path.write_text(f"# planted and written again\n{CASSETTE}")
    assert not trusts(guest)


def test_a_session_in_a_granted_folder_does_not_end_the_grant(guest: Path) -> None:
    main(["trust", str(guest)])
    for folder in ("outputs", ".pytest_cache"):
        (guest / folder).mkdir()
        (guest / folder / "written.json").write_text("{}")
    assert decide_trust(guest, written=written_folders(guest)).covers(str(guest))
    assert not trusts(guest), "these are folders of another session's"


def test_python_of_a_trusted_folder_is_imported_from_its_source(guest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from bytecode: of the module itself, of one that it imports, and without a source."""
    sources = {"granted_a": "import granted_b\nvalue = granted_b.value\n", "granted_b": "value = 'source'\n"}
    for name, text in sources.items():
        (guest / f"{name}.py").write_text("value = 'planted'\n")
        compiled = py_compile.compile(str(guest / f"{name}.py"), invalidation_mode=UNCHECKED)
        (guest / f"{name}.py").write_text(text)
    (guest / "granted_c.pyc").write_bytes(Path(compiled).read_bytes())
    monkeypatch.syspath_prepend(str(guest))
    end = import_sources_below([str(guest)])
    try:
        assert importlib.import_module("granted_a").value == "source"
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("granted_c")
    finally:
        end()
        for name in sources:
            sys.modules.pop(name, None)
    spec = source_spec("granted_b", guest / "granted_b.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    assert module.value == "source"


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
