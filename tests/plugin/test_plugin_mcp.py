"""MCP servers in sessions of pytest: what is started, what is shared, what is left, on real processes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench
from support.mcp_projects import SERVER, McpBench, lives

NO_REUSE = "--agentbench-no-reuse"


@pytest.fixture
def mcp(bench: Bench) -> McpBench:
    return McpBench(bench)


def test_tools_of_servers_are_called_by_the_names_that_a_provider_takes(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.case("sum", ("Test__add", {"a": 1, "b": 2}), ("Test__echo", {"text": "hi"}), servers=["Test"])

    finished = mcp.run()

    assert finished.outcomes == {"sum[demo]": "passed"}, finished.text
    assert mcp.results(finished, "sum") == [("3", False), ("hi", False)]
    trace = mcp.artifact(finished, "sum")["trace"]
    assert [event["name"] for event in trace if event["type"] == "tool_call"] == ["Test:add", "Test:echo"]
    assert "Test:add" in mcp.artifact(finished, "sum")["request"]["tools"]
    assert mcp.artifact(finished, "sum")["metadata"]["agentbench.mcp_protocol"] == {"Test": "2025-06-18"}
    assert mcp.names() == ["one"]


@pytest.mark.slow
def test_of_one_server_and_ten_that_distract_one_process_is_started(mcp: McpBench) -> None:
    distracting = {f"Idle{n}": mcp.server(f"idle{n}") for n in range(10)}
    mcp.servers(Real=mcp.server("real"), **distracting)
    mcp.case("task", ("Real__add", {"a": 1, "b": 2}), servers=["Real", *distracting])
    mcp.case("quiet", servers=["Real", *distracting])

    cold = mcp.run()
    assert {f"idle{n}" for n in range(10)} < set(mcp.names())
    warm = mcp.run(NO_REUSE, "-k", "task")
    started = mcp.names()
    silent = mcp.run(NO_REUSE, "-k", "quiet")

    assert (cold.exit, warm.exit, silent.exit) == (0, 0, 0), warm.text
    assert len(mcp.artifact(warm, "task")["request"]["tools"]) > 11 * 10
    assert started == ["real"]
    assert mcp.names() == []


@pytest.mark.slow
def test_of_runs_that_begin_together_one_lists_a_server(mcp: McpBench) -> None:
    mcp.servers(Slow=mcp.server("slow", "--start-seconds", "0.3"))
    for number in range(8):
        mcp.case(f"quiet{number}", servers=["Slow"])

    assert mcp.run().exit == 0
    assert mcp.names() == ["slow"]


@pytest.mark.slow
def test_calls_that_come_first_together_start_a_server_once(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.case("calls", servers=["Test"])
    mcp.script("calls", [("Test__add", {"a": n, "b": 1}) for n in range(8)])
    mcp.run()
    mcp.starts()

    finished = mcp.run(NO_REUSE)

    assert [text for text, _ in mcp.results(finished, "calls")] == [str(n + 1) for n in range(8)]
    assert mcp.names() == ["one"]


@pytest.mark.slow
def test_state_of_a_server_is_the_run_s_own_or_the_session_s(mcp: McpBench) -> None:
    mcp.servers(Own=mcp.server("own"), Shared=mcp.server("shared", scope="session"))
    twice = [("Own__count", {}), ("Own__count", {}), ("Shared__count", {})]
    for number in range(4):
        mcp.case(f"c{number}", *twice, servers=["Own", "Shared"])

    finished = mcp.run()

    found = [[text for text, _ in mcp.results(finished, f"c{number}")] for number in range(4)]
    assert [own for *own, _ in found] == [["1", "2"]] * 4
    assert sorted(shared for *_, shared in found) == ["1", "2", "3", "4"]
    started = mcp.starts()
    assert [name for name, _ in started].count("shared") == 1
    assert [name for name, _ in started].count("own") == 4
    assert not any(lives(pid) for _, pid in started)


@pytest.mark.slow
def test_a_server_that_dies_in_a_call_fails_this_call_only(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.case("dies", ("Test__die", {}), ("Test__echo", {"text": "back"}), servers=["Test"])

    finished = mcp.run()

    (died, failed), after = mcp.results(finished, "dies")
    assert (failed, "ended before it had answered" in died) == (True, True)
    assert after == ("back", False)
    assert finished.outcomes == {"dies[demo]": "passed"}
    assert mcp.names() == ["one", "one"]


@pytest.mark.slow
def test_a_shared_server_that_one_run_ends_again_and_again_serves_the_others(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("shared", scope="session"))
    mcp.case("a-dies", *[("Test__die", {})] * 4, servers=["Test"])
    mcp.case("b-counts", ("Test__count", {}), servers=["Test"])
    mcp.case("c-dies", *[("Test__die", {})] * 4, servers=["Test"])
    mcp.case("d-counts", ("Test__count", {}), servers=["Test"])

    finished = mcp.run("--agentbench-concurrency=1")

    for case_id in ("a-dies", "c-dies"):
        told = [text for text, _ in mcp.results(finished, case_id)]
        assert ["starts it again" in text for text in told] == [True, False, False, False]
        assert told[2:] == ["error: MCP server Test ended in two calls of this run: it is called no more"] * 2
    for case_id in ("b-counts", "d-counts"):
        assert mcp.results(finished, case_id) == [("1", False)]
    assert len(mcp.starts()) == 5


def test_files_written_by_a_server_are_changes_of_the_run(mcp: McpBench) -> None:
    args = ["-I", str(SERVER), "--log", "server.log"]  # without a `cwd` it begins in the workspace
    mcp.servers(Writes={"command": "python3", "args": args})
    mcp.case("writes", ("Writes__folder", {}), servers=["Writes"])

    artifact = mcp.artifact(mcp.run(), "writes")

    assert [(change["path"], change["change"]) for change in artifact["changes"]] == [("server.log", "added")]


@pytest.mark.slow
def test_the_declaration_nearest_to_the_run_wins(mcp: McpBench) -> None:
    def says(who: str) -> dict[str, Any]:
        return mcp.server(who, env={"WHO": who})

    mcp.servers(**{name: says("file") for name in "ABCD"})
    mcp.bench.agent(
        "import pytest\n@pytest.fixture(scope='session')\ndef agentbench_mcp_servers():\n"
        f"    return {{'D': {says('fixture')!r}}}\n"
    )
    calls = [(f"{name}__environment", {}) for name in "ABCD"]
    mcp.case("declares", *calls, servers={"C": says("case"), "D": says("case"), "A": says("case")})
    mcp.case("names", *calls, servers=["A", "C"])
    profile = {name: says("profile") for name in "BCD"}

    finished = mcp.run(mcp_servers=profile, allow_outside_paths=True)

    def who(case_id: str) -> list[str]:
        texts = [text for text, _ in mcp.results(finished, case_id)]
        return [json.loads(text)["WHO"] for text in texts]

    assert who("declares") == ["case", "profile", "case", "fixture"]
    assert who("names") == ["file", "profile", "profile", "fixture"]


@pytest.mark.slow
def test_files_near_the_case_win_over_those_farther_away(mcp: McpBench) -> None:
    mcp.servers(A=mcp.server("far"), B=mcp.server("far2"))
    mcp.servers("cases/c1", A=mcp.server("near"))
    mcp.case("c1", ("A__echo", {"text": "x"}), ("B__echo", {"text": "x"}), servers=["A", "B"])

    assert mcp.run().exit == 0
    assert sorted(mcp.names()) == ["far2", "near"]


@pytest.mark.slow
def test_a_server_that_nobody_declares_is_an_error_of_its_case(mcp: McpBench) -> None:
    mcp.servers(Weather=mcp.server("weather"), Time=mcp.server("time"))
    mcp.case("asks", servers=["Wether"])
    mcp.case("fine", servers=["Time"])

    finished = mcp.run()

    assert finished.outcomes == {"asks[demo]": "error", "fine[demo]": "passed"}
    assert re.search(r"test\.yaml:\d+:1: no MCP server 'Wether' is declared; did you mean 'Weather'\?", finished.text)


def test_the_image_of_a_servers_own_sandbox_is_pinned_as_all_are(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one", sandbox={"type": "docker", "image": "some:latest"}))
    mcp.case("asks", servers=["Test"])
    finished = mcp.run()
    assert finished.outcomes == {"asks[demo]": "error"}
    assert "MCP server 'Test': sandbox.image: found 'some:latest', expected a pinned image" in finished.text


@pytest.mark.parametrize("strict", [False, True])
def test_a_missing_program_or_variable_of_a_server_skips_the_case(mcp: McpBench, strict: bool) -> None:
    mcp.servers(
        Gone={"command": "no-such-program-anywhere"},
        Keyless=mcp.server("keyless", env_from=["NO_SUCH_VARIABLE"]),
        Fine=mcp.server("fine"),
    )
    mcp.case("asks", servers=["Gone", "Keyless", "Fine"])

    finished = mcp.run(*(["--agentbench-strict"] if strict else ["-rs"]))

    assert finished.outcomes == {"asks[demo]": "error" if strict else "skipped"}
    assert "MCP server 'Gone': the program no-such-program-anywhere is not installed" in finished.text
    assert "MCP server 'Keyless': the variable NO_SUCH_VARIABLE is not set" in finished.text
    assert mcp.names() == []


@pytest.mark.slow
def test_a_server_whose_tools_are_known_needs_its_program_only_when_it_is_called(mcp: McpBench) -> None:
    program = mcp.bench.write("cases/python-of-mine", '#!/bin/sh\nexec python3 "$@"\n')
    program.chmod(0o755)
    status = program.stat()
    mcp.servers(Test={**mcp.server("one"), "command": str(program)})
    mcp.case("calls", ("Test__add", {"a": 1, "b": 2}), servers=["Test"])
    assert mcp.run().exit == 0
    program.chmod(0o644)
    os.utime(program, ns=(status.st_atime_ns, status.st_mtime_ns))

    finished = mcp.run(NO_REUSE)

    [(told, failed)] = mcp.results(finished, "calls")
    assert (failed, "is not installed" in told) == (True, True)
    assert finished.outcomes == {"calls[demo]": "passed"}


@pytest.mark.slow
def test_a_server_that_lists_no_tools_is_an_error_and_no_skip(mcp: McpBench) -> None:
    mcp.servers(Mute=mcp.server("mute", "--no-list"), Dead=mcp.server("dead", "--die-at-start", "--say", "no licence"))
    mcp.case("mute", servers=["Mute"])
    mcp.case("dead", servers=["Dead"])

    finished = mcp.run()

    assert finished.outcomes == {"mute[demo]": "error", "dead[demo]": "error"}
    assert "MCP server Mute: it lists no tools" in finished.text
    assert "no licence" in finished.text


def test_a_dry_run_and_predictions_start_nothing(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.case("calls", ("Test__add", {"a": 1, "b": 2}), servers=["Test"])
    predictions = mcp.bench.rows("predictions.jsonl", {"id": "calls", "prediction": "Paris"})

    dry = mcp.run("--agentbench-dry-run")
    predicted = mcp.bench.run(f"--agentbench-predictions={predictions}", "cases")

    assert "1 run" in dry.text
    assert predicted.exit == 0, predicted.text
    assert mcp.names() == []


def test_a_key_in_a_result_is_not_stored(mcp: McpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_ID", "from-the-environment")
    own = {"MAPS_API_KEY": "of-the-server-alone", "REGION": "no-secret-at-all"}
    mcp.servers(Test=mcp.server("one", env_from=["WEATHER_ID"], env=own))
    mcp.case("calls", ("Test__environment", {}), servers=["Test"])

    finished = mcp.run()

    [(told, _)] = mcp.results(finished, "calls")
    hidden = dict.fromkeys(("WEATHER_ID", "MAPS_API_KEY"), "[redacted]")
    assert json.loads(told).items() >= {**hidden, "REGION": "no-secret-at-all"}.items()
    stored = b"".join(_contents(mcp.path / "outputs"))
    assert b"from-the-environment" not in stored
    assert b"of-the-server-alone" not in stored


@pytest.mark.slow
def test_a_run_is_another_one_where_its_servers_are(mcp: McpBench) -> None:
    script = mcp.bench.write("cases/tools/server.py", SERVER.read_text())
    args = ["-I", "server.py", "--log", str(mcp.log)]  # which it writes itself
    declared = {"command": "python3", "args": args, "cwd": str(script.parent), "env": {"KEY": "one"}}
    mcp.servers(Test=declared)
    mcp.case("calls", ("Test__add", {"a": 1, "b": 2}), servers=["Test"])
    assert not mcp.run().runs["calls[demo]"]["reused"]
    assert mcp.run().runs["calls[demo]"]["reused"]

    mcp.servers(Test={**declared, "env": {"KEY": "two"}})
    assert not mcp.run().runs["calls[demo]"]["reused"]

    script.write_text(f"{SERVER.read_text()}\n")
    finished = mcp.run()
    assert not finished.runs["calls[demo]"]["reused"]

    covered = next((mcp.path / "outputs").rglob("run_1.fingerprint_input.json"))
    told = json.loads(covered.read_text())["extra"]["mcp_servers"]["Test"]
    assert (told["cwd"], list(told["files"])) == ("tools", ["tools/server.py"])
    assert re.fullmatch("[0-9a-f]{64}", told["env"]["KEY"])


@pytest.mark.slow
def test_a_later_version_of_a_server_is_listed_again(mcp: McpBench) -> None:
    version = mcp.bench.write("cases/version", "1.0")
    script = f'exec python3 -I {SERVER} --version "$(cat {version})" --tools $(wc -c < {version}) --log {mcp.log}'
    mcp.servers(Test={"command": "sh", "args": ["-c", script]})
    mcp.case("calls", ("Test__echo", {"text": "x"}), servers=["Test"])
    few = len(mcp.artifact(mcp.run(), "calls")["request"]["tools"])

    version.write_text("1.10.0")
    same = len(mcp.artifact(mcp.run(NO_REUSE), "calls")["request"]["tools"])
    more = len(mcp.artifact(mcp.run(NO_REUSE), "calls")["request"]["tools"])

    assert (same - few, more - few) == (0, 3)


@pytest.mark.slow
def test_a_broken_catalogue_is_made_again(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    mcp.case("quiet", servers=["Test"])
    mcp.run()
    [catalogue] = (mcp.path / "outputs/mcp/catalogues").iterdir()
    whole = catalogue.read_bytes()
    catalogue.write_bytes(whole[:100])
    mcp.starts()

    assert mcp.run(NO_REUSE).exit == 0
    assert mcp.names() == ["one"]
    assert catalogue.read_bytes() == whole


def test_an_agent_of_the_user_s_own_calls_them_too(mcp: McpBench) -> None:
    mcp.bench.agent(
        """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    async def agent(case, context):
        return (await context.toolbox().call("Test:echo", {"text": "Paris it is"})).content
    return agent
"""
    )
    mcp.servers(Test=mcp.server("one"))
    mcp.case("calls", servers=["Test"])

    mcp.bench.profile("here", sandbox="local")

    finished = mcp.bench.run("--agentbench-run-profile=here", "cases")

    assert finished.outcomes == {"calls[agent]": "passed"}, finished.text


def test_a_tool_shell_does_not_see_the_environment_of_a_server(mcp: McpBench) -> None:
    _shell_sees_nothing(mcp, {"type": "bubblewrap"})


def _shell_sees_nothing(mcp: McpBench, sandbox: dict[str, Any]) -> None:
    secret = "only-for-the-server"
    mcp.servers(Test=mcp.server("one", log="/workspace/log", env={"PLAIN": secret}))
    look = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1 | tr '\\0' '\\n'; echo looked"
    asked = {"messages": [{"role": "user", "content": "?"}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
    calls = [("Test__environment", {}), ("exec_shell", {"command": look}), ("Test__environment", {})]
    mcp.case("looks", *calls, servers=["Test"], input=asked)

    finished = mcp.run(sandbox=sandbox)

    (before, _), (seen, _), (after, _) = mcp.results(finished, "looks")
    assert json.loads(before)["PLAIN"] == json.loads(after)["PLAIN"] == secret
    assert "looked" in seen
    assert secret not in seen
    assert "mcp_server" not in seen


def _contents(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())
