"""`agentbench openclaw capture`: from a live workspace to an agent's folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.other_user import NOBODY, as_nobody, needs_root

from pytest_agentbench.cli import main
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.packs.openclaw import capture as captured_files
from pytest_agentbench.packs.openclaw.config import AgentFile, find_agent_file

KEY = "sk-or-v1-0123456789abcdef0123456789abcdef"

Capture = Callable[..., tuple[int, str, str]]


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a live workspace in OpenClaw's folder, below the folder of a project, where commands run."""
    workspace = tmp_path / ".openclaw" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("# Rules\n")
    (tmp_path / "cases").mkdir()
    monkeypatch.chdir(tmp_path)
    return workspace


@pytest.fixture
def capture(live: Path, capsys: pytest.CaptureFixture[str]) -> Capture:
    def call(*options: str, agent: str = "helper") -> tuple[int, str, str]:
        code = main(["openclaw", "capture", str(live), "--agent-id", agent, "--into", "cases/agents", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def configure(live: Path, config: Any) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    (live.parent / "openclaw.json").write_text(text)


def files(agent: str = "helper") -> list[str]:
    root = Path("cases/agents", agent, "workspace")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def fragments(agent: str = "helper") -> dict[str, Any]:
    root = ConfigRoot(Path("cases"))
    return root.load(find_agent_file(root, agent), AgentFile).openclaw.model_dump(exclude_defaults=True)


def test_files_are_copied_as_they_are(live: Path, capture: Capture) -> None:
    (live / "skills" / "sum").mkdir(parents=True)
    (live / "skills" / "sum" / "run.sh").write_text("#!/bin/sh\n")
    (live / "skills" / "sum" / "run.sh").chmod(0o700)
    (live / "logo.png").write_bytes(bytes(range(256)))

    code, printed, _ = capture()
    copied = Path("cases/agents/helper/workspace")
    assert code == 0
    assert "cases/agents/helper written: 3 files, 274 bytes" in printed
    assert files() == ["AGENTS.md", "logo.png", "skills/sum/run.sh"]
    assert (copied / "logo.png").read_bytes() == bytes(range(256))
    assert os.access(copied / "skills/sum/run.sh", os.X_OK)
    assert not os.access(copied / "AGENTS.md", os.X_OK)
    assert [path.name for path in Path("cases/agents").iterdir()] == ["helper"]


@pytest.mark.slow
def test_editors_find_its_schema_where_the_project_keeps_one(live: Path, capture: Capture) -> None:
    Path("pytest.ini").touch()
    main(["schema", "agent", "--output", ".schemas"])
    assert capture()[0] == 0
    path = Path("cases/agents/helper/agent.yaml")
    line = path.read_text().splitlines()[0]
    assert line == "# yaml-language-server: $schema=../../../.schemas/agent.schema.json"
    assert (path.parent / line.partition("=")[2]).samefile(".schemas/agent.schema.json")


def test_links_and_special_files_are_listed_and_never_followed(live: Path, capture: Capture) -> None:
    (live / "passwd").symlink_to("/etc/passwd")
    (live / "folder").symlink_to("/etc")
    os.mkfifo(live / "pipe")
    (live / "notes.md").write_text("x")
    os.link(live / "notes.md", live / "same.md")

    code, printed, _ = capture()
    assert code == 0
    assert files() == ["AGENTS.md"]
    for line in (
        "passwd: a link",
        "folder: a link",
        "pipe: not a regular file",
        "same.md: a file with several hard links",
    ):
        assert f"  {line}" in printed


def test_state_caches_and_the_memory_of_others_stay(live: Path, capture: Capture) -> None:
    configure(live, {"agents": {"entries": {"helper": {}, "other": {"workspace": "/srv/other"}}}})
    for path in (
        *(".git/config", "skills/x/node_modules/y/index.js", "tool/__pycache__/a.pyc", ".openclaw/state.json"),
        *("sessions/1.jsonl", "memory/other/1.md", "memory/other.sqlite", ".DS_Store"),
        *("memory/2026-11-22.md", "notes/sessions/1.md"),
    ):
        (live / path).parent.mkdir(parents=True, exist_ok=True)
        (live / path).write_text("x")

    code, printed, _ = capture()
    assert code == 0
    assert files() == ["AGENTS.md", "memory/2026-11-22.md", "notes/sessions/1.md"]
    assert "  memory/other: the memory of another agent" in printed
    assert "  .git: version control" in printed
    assert "  skills/x/node_modules: installed packages" in printed


def test_files_with_keys_are_named_and_not_written(
    live: Path, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "correct-horse-battery")
    configure(live, {"gateway": {"auth": {"mode": "password", "token": "0a1b2c3d-gateway"}}})
    (live / "TOOLS.md").write_text(f"Use {KEY} for search.\n")
    (live / "USER.md").write_text("Log in with correct-horse-battery.\n")
    (live / "call.sh").write_text("curl -H 'X: 0a1b2c3d-gateway' localhost\n")
    (live / "data.bin").write_bytes(b"\xff\x00" + KEY.encode() + b"\x00")
    (live / f"{KEY}.md").write_text("x")
    (live / "why.md").write_text("The mode is password.\n")
    (live / ".env").write_text("PLAIN=word\n")
    (live / ".env.example").write_text("PLAIN=\n")

    code, printed, errors = capture()
    assert code == 1
    assert files() == [".env.example", "AGENTS.md", "why.md"]
    assert sorted(errors.split()[-5:]) == ["TOOLS.md", "USER.md", "[redacted].md", "call.sh", "data.bin"]
    assert "  .env: files of this name contain keys" in printed
    for secret in (KEY, "correct-horse-battery", "0a1b2c3d-gateway"):
        assert secret not in printed + errors
        assert not any(secret.encode() in path.read_bytes() for path in Path("cases").rglob("*") if path.is_file())


def test_capture_writes_an_agent_from_the_live_configuration(live: Path, capture: Capture) -> None:
    configure(
        live,
        {
            "agents": {
                "defaults": {
                    "workspace": str(live),
                    "model": {"primary": "openrouter/openai/gpt-4o", "fallbacks": ["openai/gpt-4o-mini"]},
                    "models": {"openrouter/openai/gpt-4o": {"alias": "main"}},
                    "imageModel": "openai/gpt-4o",
                    "sandbox": {"mode": "all"},
                    "thinkingDefault": "low",
                    "subagents": {"model": "openai/gpt-4o", "maxConcurrent": 2},
                    "memorySearch": {"remote": {"apiKey": KEY, "headers": {"X-Token": KEY, "X-Kind": "search"}}},
                },
                "list": [
                    {
                        "id": "support-agent",
                        "name": "Support",
                        "systemPromptOverride": "Help people: always.",
                        "model": "openrouter/openai/gpt-4o",
                        "skills": ["sum"],
                        "identity": {"name": "Sam", "emoji": "🦞"},
                    }
                ],
            },
            "models": {"providers": {"openrouter": {"apiKey": KEY}}},
        },
    )
    code, printed, errors = capture(agent="support_agent")
    assert code == 1, errors  # for the key in a header
    assert fragments("support_agent") == {
        "identity": {"name": "Sam", "emoji": "🦞"},
        "agents_defaults": {
            "thinkingDefault": "low",
            "subagents": {"maxConcurrent": 2},
            "memorySearch": {"remote": {"headers": {"X-Kind": "search"}}},
        },
        "agent": {"id": "support-agent", "skills": ["sum"], "prompt": "Help people: always."},
        "model_defaults": {"aliases": {"default": "main"}},
    }
    assert yaml.safe_load(Path("cases/agents/support_agent/agent.yaml").read_text())["title"] == "Support"
    assert "  agents.defaults.model\n" in printed
    assert "  agents.defaults.imageModel\n" in printed
    assert "  agents.defaults.subagents.model\n" in printed
    assert errors.splitlines()[1:] == ["  agents.defaults.memorySearch.remote.headers.X-Token"]
    assert KEY not in printed + errors
    assert main(["validate", "cases"]) == 0


def test_the_one_that_works_in_the_workspace_is_captured(live: Path, capture: Capture) -> None:
    configure(
        live, {"agents": {"entries": {"helper": {"workspace": "/srv/x"}, "writer": {"workspace": str(live), "a": 1}}}}
    )
    assert capture()[0] == 0
    assert fragments() == {"agent": {"id": "writer", "a": 1}}


@pytest.mark.parametrize(
    "entries",
    [{"a": {}, "b": {}}, {"a": {"workspace": "/srv/x"}}, {"a": {"workspace": "{live}"}, "b": {"workspace": "{live}"}}],
)
def test_an_ambiguous_agent_is_an_error(live: Path, capture: Capture, entries: dict[str, Any]) -> None:
    configure(live, json.dumps({"agents": {"entries": entries}}).replace("{live}", str(live)))
    code, _, errors = capture()
    assert code == 1
    assert "expected one, or one with the id helper: give the live agent's id with --agent-id" in errors
    assert not Path("cases/agents").exists()


def test_without_a_configuration_the_prompt_is_asked_for(capture: Capture) -> None:
    code, printed, _ = capture()
    assert code == 0
    assert "agent.yaml without an openclaw.json: add the agent's prompt to it" in printed
    assert fragments() == {}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{\n  // the model\n  "agents": {}}', "openclaw.json:2:3: not valid JSON"),
        ("[]", "found list, expected an object"),
        ({"$include": "more.json"}, "$include: included files are not read"),
        ({"agents": {"$include": "more.json"}}, "agents.$include: included files are not read"),
    ],
)
def test_a_configuration_that_is_not_understood_writes_nothing(
    live: Path, capture: Capture, config: Any, expected: str
) -> None:
    configure(live, config)
    code, _, errors = capture()
    assert code == 1
    assert expected in errors
    assert not Path("cases/agents").exists()


def test_an_agent_is_only_replaced_by_force_and_as_a_whole(live: Path, capture: Capture) -> None:
    (live / "old.md").write_text("x")
    assert capture()[0] == 0
    (live / "old.md").unlink()
    (live / "new.md").write_text("y")

    code, _, errors = capture()
    assert (code, files()) == (1, ["AGENTS.md", "old.md"])
    assert "exists already and is not replaced; use --force" in errors
    assert capture("--force")[0] == 0
    assert files() == ["AGENTS.md", "new.md"]
    assert [path.name for path in Path("cases/agents").iterdir()] == ["helper"]


def test_force_never_replaces_what_is_captured(live: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nested, config = Path("cases/nested/workspace"), Path("cases/configured/settings.json")
    for folder in (nested, config.parent):
        folder.mkdir(parents=True)
    (nested / ".env").write_text("nothing that is captured")
    config.write_text("{}")
    Path("cases/linked").symlink_to(live.parent)
    for workspace, agent, options in (
        (nested, "nested", ()),
        (live, "linked", ()),
        (live, "configured", ("--config", str(config))),
    ):
        given = [str(workspace), "--agent-id", agent, "--into", "cases", "--force", *options]
        assert main(["openclaw", "capture", *given]) == 1
        assert "would be replaced, but contains" in capsys.readouterr().err
    assert [path.exists() for path in (nested / ".env", config, live)] == [True] * 3
    assert Path("cases/linked").is_symlink()


@pytest.mark.parametrize(
    "state", ["state/openclaw.sqlite", "agents/main/agent/auth.json", "agents/main/sessions/1.jsonl"]
)
def test_openclaws_own_folder_is_refused_without_its_configuration_too(
    live: Path, capture: Capture, state: str
) -> None:
    (live / state).parent.mkdir(parents=True)
    (live / state).write_text("x")
    code, _, errors = capture()
    assert (code, Path("cases/agents").exists()) == (1, False)
    assert "so this is OpenClaw's own folder" in errors


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
def test_a_workspace_that_is_too_large_leaves_the_old_agent(
    live: Path, capture: Capture, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    assert capture()[0] == 0
    (live / "more.md").write_text("x" * 100)
    monkeypatch.setattr(captured_files, limit, {"MAX_FILES": 1, "MAX_BYTES": 50}[limit])
    code, _, errors = capture("--force")
    assert (code, files()) == (1, ["AGENTS.md"])
    assert "the limit of an agent's workspace" in errors
    assert [path.name for path in Path("cases/agents").iterdir()] == ["helper"]


def test_a_file_that_is_too_large_is_left_out(live: Path, capture: Capture) -> None:
    with (live / "film.mp4").open("wb") as file:
        file.truncate(16 * 2**20 + 1)
    code, printed, _ = capture()
    assert (code, files()) == (0, ["AGENTS.md"])
    assert "  film.mp4: larger than 16 MB" in printed


@needs_root
def test_a_workspace_that_cannot_be_listed_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as top:  # every user may go through its parents
        home, workspace = Path(top), Path(top, "root", "workspace")
        workspace.mkdir(parents=True)
        assert main(["openclaw", "capture", str(workspace), "--agent-id", "open", "--into", top]) == 0
        capsys.readouterr()
        os.chown(home, NOBODY, NOBODY)
        for closed in (workspace, workspace.parent):
            closed.chmod(0o700)
            with as_nobody():
                assert main(["openclaw", "capture", str(workspace), "--agent-id", "helper", "--into", top]) == 1
            error = capsys.readouterr().err
            assert error.startswith(f"{workspace}: cannot be looked into: Permission denied")
            assert sorted(path.name for path in home.iterdir()) == ["open", "root"]


def test_a_folder_that_is_not_a_workspace_is_refused(
    live: Path, capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(live, {})
    wrong = [
        (str(live.parent), "cases/agents", "found openclaw.json, so this is OpenClaw's own folder"),
        (str(live / "AGENTS.md"), "cases/agents", "found a file, expected the folder of a live workspace"),
        (str(live / "gone"), "cases/agents", "there is no such file or folder"),
        (str(live), str(live / "agents"), "is below the workspace"),
        (str(live), str(live.parent / "openclaw.json"), "found a file, expected the folder of agents"),
        (str(live), "/proc/agents", "cannot be written"),
    ]
    for workspace, into, expected in wrong:
        assert main(["openclaw", "capture", workspace, "--agent-id", "helper", "--into", into]) == 1
        assert expected in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["openclaw", "capture", str(live), "--agent-id", "../x"])
