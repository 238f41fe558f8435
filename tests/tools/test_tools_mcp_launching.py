"""Where the program of a server lies, what its sandbox must show, and what it is told."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import needs_bubblewrap
from support.mcp_connections import connected, declared_server, sandbox_for

from pytest_agentbench.errors import McpServerError, UnavailableError
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.tools.mcp.launching import Turns, expand_headers, find_problem, launch_server, list_mounts
from pytest_agentbench.workspaces.sandboxes import shown
from pytest_agentbench.workspaces.sandboxes.base import Mount

KINDS = ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)]


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that no sandbox shows by itself."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        if name.startswith(("/tmp/", "/usr/")):
            pytest.skip("the tests lie below a folder that every sandbox has of its own")
        os.chmod(name, 0o755)
        yield Path(name)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


async def said(server: McpServer, kind: Any) -> str:
    """What a program writes to stdout until its end, and then what to stderr."""
    async with sandbox_for(server, kind) as sandbox:
        process = await launch_server(server, sandbox, os.environ)
        output = b""
        while data := await process.read():
            output += data
        text = output.decode() + process.errors()
        await process.stop()
        return text


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_beside_the_declaration_is_started_in_its_folder(kind: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    executable(tmp_path / "serve", '#!/usr/bin/env python3\nprint(open("data.txt").read())\nopen("made.txt", "w")\n')
    (tmp_path / "data.txt").write_text("beside it")
    text = asyncio.run(said(McpServer(command="./serve", cwd=str(tmp_path)), kind))
    assert text.startswith("beside it\n")
    assert ("Read-only file system" in text) == (kind == "bubblewrap")


@needs_bubblewrap
def test_bubblewrap_sees_a_program_with_its_installation_and_interpreter_and_no_more(outside: Path) -> None:
    (outside / "home/lib").mkdir(parents=True)
    (outside / "home/lib/data.txt").write_text("of the installation")
    (outside / "home/secret.txt").write_text("of somebody")
    executable(outside / "runtime/bin/show", '#!/bin/sh\nexec sh "$@"\n')
    program = f'#!{outside}/runtime/bin/show\ncat "{outside}/home/lib/data.txt" "{outside}/home/secret.txt"\n'
    executable(outside / "home/bin/real", program)
    (outside / "elsewhere").mkdir()
    (outside / "elsewhere/tool").symlink_to("../home/bin/real")
    text = asyncio.run(said(McpServer(command=str(outside / "elsewhere/tool")), "bubblewrap"))
    assert text.startswith("of the installation")
    assert "of somebody" not in text


@needs_bubblewrap
def test_bubblewrap_finds_what_is_on_the_path_of_this_machine(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(outside / "runtime/bin/thenode", '#!/bin/sh\nexec sh "$@"\n')
    package = outside / "project/node_modules/a-server"
    executable(package / "index.js", "#!/usr/bin/env thenode\ncat $(dirname $0)/../other/part.js\n")
    (outside / "project/node_modules/other").mkdir()
    (outside / "project/node_modules/other/part.js").write_text("the other package")
    (outside / "project/node_modules/.bin").mkdir()
    (outside / "project/node_modules/.bin/a-server").symlink_to("../a-server/index.js")
    path = f"{outside}/project/node_modules/.bin:{outside}/runtime/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    server = McpServer(command="a-server")
    text = asyncio.run(said(server, "bubblewrap"))
    assert text == "the other package"
    mounted = {str(mount.source) for mount in list_mounts(server, "bubblewrap")}
    assert mounted == {f"{outside}/project/node_modules", f"{outside}/runtime/bin"}


@needs_bubblewrap
def test_bubblewrap_shows_a_program_below_tmp_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name, tempfile.TemporaryDirectory() as elsewhere:
        home = Path(name)
        commands = f"cat {home}/lib/data.txt {home}/secret.txt; echo x > {home}/bin/x; echo mine > /tmp/y; cat /tmp/y"
        executable(home / "bin/serve", f"#!/bin/sh\n{commands}\n")
        (home / "lib").mkdir()
        (home / "lib/data.txt").write_text("of the installation\n")
        (home / "secret.txt").write_text("of somebody")
        monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")

        async def run() -> str:
            server = McpServer(command="serve")
            async with sandbox_for(server, "bubblewrap") as sandbox:
                private = sandbox.workspace.private_tmp()
                (private / home.name).symlink_to(elsewhere)  # a program's, to have mount points made elsewhere
                process = await launch_server(server, sandbox, os.environ)
                output = b""
                while data := await process.read():
                    output += data
                await process.stop()
                assert os.listdir(elsewhere) == []
                assert os.listdir(private) == [home.name]
                return output.decode() + process.errors()

        text = asyncio.run(run())
        assert text.startswith("of the installation\nmine\n")
        assert "of somebody" not in text
        assert text.count("No such file") == text.count("Read-only file system") == 1
        assert os.listdir(home / "bin") == ["serve"]


@needs_bubblewrap
def test_a_program_below_the_place_of_the_workspace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "WORKSPACE", str(tmp_path))
    program = executable(tmp_path / "bin/serve", "#!/bin/sh\n")
    server = McpServer(command=str(program))
    reason = f"the program {program} is below {tmp_path}, which is the run's workspace in the sandbox"
    assert find_problem(server, os.environ, "bubblewrap") == reason
    assert find_problem(server, os.environ, "local") is None
    assert list_mounts(server, "bubblewrap") == ()
    with pytest.raises(UnavailableError, match="is the run's workspace in the sandbox"):
        asyncio.run(said(server, "bubblewrap"))


def test_a_program_is_looked_up_on_the_path_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "serve", "#!/bin/sh\necho found\n")
    declared = McpServer(command="serve", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert find_problem(declared, os.environ) == "the program serve is not installed"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_problem(declared, os.environ) is None
    assert asyncio.run(said(McpServer(command="serve"), "local")) == "found\n"


def test_problems_of_what_a_declaration_names() -> None:
    server = McpServer(url="http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer ${NO_SUCH_KEY}"})
    assert find_problem(server, {}) == "the variable NO_SUCH_KEY is not set"
    assert find_problem(server, {"NO_SUCH_KEY": "x"}) is None
    assert expand_headers(server, {"NO_SUCH_KEY": "x$y"}) == {"Authorization": "Bearer x$y"}
    assert find_problem(McpServer(command="no-such-program"), {}, "docker") is None
    assert find_problem(McpServer(command="./made-by-the-template"), {}) is None
    assert find_problem(McpServer(command="./no-such", cwd="/usr"), {}) == "the program ./no-such is not installed"


def test_folders_keep_their_place_unless_a_sandbox_has_one_there() -> None:
    kept = McpServer(command="x", cwd="/srv/weather")
    assert list_mounts(kept, "docker") == (Mount(Path("/srv/weather"), "/srv/weather"),)
    moved = McpServer(command="x", cwd="/tmp/weather/")
    assert list_mounts(moved, "docker") == (Mount(Path("/tmp/weather"), "/mnt/tmp/weather"),)
    assert list_mounts(kept, "local") == ()


def test_programs_that_start_together_start_in_turns_of_their_own() -> None:
    async def main() -> None:
        turns, turn, seen = Turns(), 0, []

        async def start() -> None:
            await turns.next()
            seen.append(turn)

        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(start()) for _ in range(20)]
            while not all(task.done() for task in starts):
                turn += 1
                await asyncio.sleep(0)
        assert len(set(seen)) == 20

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_that_takes_too_long_to_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_agentbench.tools.mcp.session.START_SECONDS", 0.4)

    async def main() -> None:
        async with connected(declared_server("--start-seconds", "60")) as connection:
            with pytest.raises(McpServerError, match=r"^MCP server Test: it did not answer within 0\.4 s of its start"):
                await connection.listing()

    asyncio.run(main())
