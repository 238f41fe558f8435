"""The tools that run commands, in every sandbox that is to be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker

from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.tools.base import ToolContext, ToolOutput
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

TOOLS = ("exec_shell", "exec_python", "shell_session", "write_file")
Call = Callable[..., Awaitable[ToolOutput]]

KINDS = [
    pytest.param("local"),
    pytest.param("bubblewrap", marks=[needs_bubblewrap, pytest.mark.slow]),
    pytest.param("docker", marks=[needs_docker, pytest.mark.slow]),
]


@asynccontextmanager
async def a_run(kind: SandboxKind) -> AsyncIterator[Call]:
    """`await call(tool, **arguments)` in one run."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    workspace = workspaces.create("case")
    sandbox = await sandboxes.start(SandboxSpec(kind, image=IMAGE if kind == "docker" else None), workspace)
    try:

        async def started() -> Any:
            return sandbox

        context = ToolContext(lambda: workspace, started, lambda: None)
        box = Toolbox([BUILTIN_TOOLS[name] for name in TOOLS], context)

        async def call(tool: str, **arguments: Any) -> ToolOutput:
            return await box.call(tool, arguments)

        yield call
    finally:
        await sandbox.stop()
        await sandboxes.close()
        workspaces.close()


def in_session(kind: SandboxKind, *calls: str | dict[str, Any]) -> list[str]:
    """What `shell_session` answers to calls, one after the other; a text is a command."""

    async def run() -> list[str]:
        async with a_run(kind) as call:
            answers = []
            for each in calls:
                arguments = {"command": each} if isinstance(each, str) else each
                answers.append((await call("shell_session", **arguments)).content)
            return answers

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_keeps_folder_variables_functions_and_jobs(kind: SandboxKind) -> None:
    answers = in_session(
        kind,
        "mkdir a && cd a && x=5 && greet() { echo hello $1; }",
        "pwd; echo $x; greet you; false",
        "mkfifo pipe; { cat pipe; echo the job is done; } & echo started",
        "echo from the job > pipe; wait",
        "umask 077; export Y='it''s'",
        "umask; sh -c 'echo $Y'",
    )
    assert answers[0] == "[exit code 0]"
    assert answers[1].endswith("/a\n5\nhello you\n[exit code 1]")
    assert answers[2] == "started\n[exit code 0]"
    assert answers[3] == "from the job\nthe job is done\n[exit code 0]"
    assert answers[5] == "0077\nits\n[exit code 0]"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_a_command_does_confuses_where_its_output_ends(kind: SandboxKind) -> None:
    answers = in_session(
        kind,
        'cat; read line; echo "<$line>"',  # it gets no input, not even the next command
        "printf 'no newline'",
        "if (",
        "echo 'unclosed",
        "cat <<END\nhere\nEND",
        "set -x; echo traced",
        "{ set +x; } 2>/dev/null; echo $(( 6 * 7 ))\n\n# a comment",
        "printf 'a\\000b\\377c'",
        "printf() { echo mine; }; shopt -s expand_aliases 2>/dev/null; alias printf=false",
        "echo still here",
    )
    assert answers[0] == "<>\n[exit code 0]"
    assert answers[1] == "no newline\n[exit code 0]"
    assert answers[2].endswith("[exit code 2]") or answers[2].endswith("[exit code 1]")
    assert "ntax error" in answers[2]
    assert "nterminated" in answers[3] or "unexpected EOF" in answers[3]
    assert answers[4] == "here\n[exit code 0]"
    assert "echo traced\ntraced\n" in answers[5]
    assert answers[5].endswith("\n[exit code 0]")
    assert answers[6].endswith("42\n[exit code 0]")
    assert answers[7] == "a\0b\ufffdc\n[exit code 0]"
    assert answers[9] == "still here\n[exit code 0]"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_out_ends_the_shell_session_and_is_reported(kind: SandboxKind) -> None:
    answers = in_session(
        kind,
        "x=5; mkfifo pipe",
        {"command": "echo before; sh -c 'cat pipe' & cat pipe", "timeout_seconds": 0.5},
        'echo "<$x>"; ls',
        "python3 -c 'import os; os.open(\"pipe\", os.O_WRONLY | os.O_NONBLOCK)'",  # fails where nobody reads it
    )
    assert answers[1].startswith("before\n[killed after 0.5 s: time-out; the shell ended with it, the next call starts")
    assert answers[2] == "<>\npipe\n[exit code 0]"
    assert "No such device or address" in answers[3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_ended_is_replaced(kind: SandboxKind) -> None:
    answers = in_session(
        kind,
        "x=5; exit 3",
        'echo "<$x>"; y=6',
        {"restart": True},
        {"command": 'echo "<$y>"; z=7'},
        {"restart": True, "command": 'echo "<$z>"'},
    )
    assert answers[0].startswith("[the shell ended before the command did; the next call starts a new one")
    assert answers[1] == "<>\n[exit code 0]"
    assert answers[2] == "[the shell is new]"
    assert answers[3] == "<>\n[exit code 0]"
    assert answers[4] == "<>\n[exit code 0]"


@pytest.mark.parametrize("kind", KINDS)
def test_commands_of_one_turn_wait_for_each_other(kind: SandboxKind) -> None:
    async def run() -> list[str]:
        async with a_run(kind) as call:
            commands = [f"n=$((n + {number})); echo $n" for number in (1, 10, 100)]
            outputs = await asyncio.gather(*(call("shell_session", command=command) for command in commands))
            return [output.content for output in outputs]

    assert asyncio.run(run()) == [f"{n}\n[exit code 0]" for n in (1, 11, 111)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_cancelled_leaves_no_half_command(kind: SandboxKind) -> None:
    async def run() -> str:
        async with a_run(kind) as call:
            await call("shell_session", command="mkfifo pipe; x=5")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await call("shell_session", command="cat pipe; echo late")
            return (await call("shell_session", command='echo "<$x>"')).content

    assert asyncio.run(run()) == "<>\n[exit code 0]"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_is_killed_takes_the_session_with_it(kind: SandboxKind) -> None:
    async def run() -> list[str]:
        async with a_run(kind) as call:
            await call("shell_session", command="x=5")
            killed = await call("exec_shell", command="mkfifo pipe; cat pipe", timeout_seconds=0.5)
            after = [await call("shell_session", command='echo "<$x>"') for _ in range(2)]
            return [output.content for output in (killed, *after)]

    killed, told, fresh = asyncio.run(run())
    assert killed == "[killed after 0.5 s: time-out]"
    assert told.startswith(("[the shell had ended", "[the shell ended"))
    assert fresh == "<>\n[exit code 0]"


def test_a_long_output_keeps_its_two_ends() -> None:
    [answer] = in_session("local", "seq 100000; echo the end")
    assert answer.startswith("1\n2\n3\n")
    assert answer.endswith("100000\nthe end\n[exit code 0]")
    assert "left out" in answer
    assert len(answer) < 33_000


def test_a_session_needs_a_command_that_a_shell_can_take() -> None:
    nothing, nul, number = in_session("local", {}, "echo a\0b", {"command": "x", "timeout_seconds": 10**9})
    assert nothing == "error: shell_session: found neither 'command' nor 'restart': true"
    assert "found a NUL character" in nul
    assert "timeout_seconds: 1000000000 is greater than the maximum of 600" in number


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_python_program_is_run_in_the_workspace(kind: SandboxKind) -> None:
    async def run() -> list[ToolOutput]:
        async with a_run(kind) as call:
            await call("write_file", path="helping.py", content="word = 'hällo'")
            return [
                await call(
                    "exec_python", code="import helping, sys\nprint(helping.word)\nprint('err', file=sys.stderr)"
                ),
                await call("exec_python", code="print(repr(__import__('sys').stdin.read()))"),
                await call("exec_python", code="1 / 0"),
                await call("exec_shell", command="cat; ls"),
            ]

    imported, no_input, failed, shell = asyncio.run(run())
    assert (imported.content, imported.is_error) == ("hällo\nerr\n[exit code 0]", False)
    assert no_input.content == "''\n[exit code 0]"
    assert failed.is_error
    assert 'File "<stdin>", line 1' in failed.content
    assert failed.content.endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert "helping.py" in shell.content


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_a_command_cannot_contain_is_refused_or_replaced(kind: SandboxKind) -> None:
    async def run() -> list[str]:
        async with a_run(kind) as call:
            commands = [await call("exec_shell", command=command) for command in ("echo a\0b", "echo '\ud800x'")]
            return [output.content for output in (*commands, await call("exec_python", code="print('\ud800x')"))]

    assert asyncio.run(run()) == [
        "error: exec_shell: command: found a NUL character, which no shell accepts",
        "?x\n[exit code 0]",
        "?x\n[exit code 0]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_output_of_a_killed_program_is_kept(kind: SandboxKind) -> None:
    async def run() -> ToolOutput:
        async with a_run(kind) as call:
            return await call("exec_python", code="print('begun')\nimport time\ntime.sleep(60)", timeout_seconds=3)

    assert asyncio.run(run()).content == "begun\n[killed after 3 s: time-out]"
