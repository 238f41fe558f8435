"""`agentbench mcp synthesize` from the command line, with real servers and an endpoint on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthesis_author import Author, Maker, scenario_of, scores, task

from pytest_agentbench.packs.mcp_bench.synthesis.drafts import Drafts
from pytest_agentbench.secrets.redaction import Redactor

pytestmark = pytest.mark.slow


@pytest.fixture
def maker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Maker]:
    with Maker(tmp_path, getattr(request, "param", None) or Author()) as maker:
        yield maker


def mixed() -> Author:
    """Task 2 is below the gate at first, and the fuzzy text of task 3 names a tool at first."""

    def fuzzing(prompt: str) -> str:
        scenario = scenario_of(prompt)
        if scenario == "3-0" and "which names the tool" not in prompt:
            return "Could you run ticket_price for my trip 3-0?"
        return f"I'm off on trip {scenario}, what would that cost me?"

    def gate(prompt: str) -> str:
        return scores(7, 8) if "Trip 2-0" in prompt else scores(9.5, 7)

    return Author(fuzzing=fuzzing, gate=gate)


@pytest.mark.parametrize("maker", [mixed()], indirect=True)
def test_tasks_are_made_checked_and_collected(maker: Maker) -> None:
    done = maker.make("--count", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 of 3 tasks in tasks.json" in done.stdout
    assert "2 drafts rejected: " in done.stdout
    made = maker.tasks()
    assert [each["task_id"] for each in made] == [f"timetable_exchange_00{n}" for n in range(3)]
    assert [each["task_description"][:8] for each in made] == ["Trip 1-0", "Trip 2-1", "Trip 3-0"]
    for each in made:
        assert each["dependencies"] == {
            "Timetable:ticket_price": ["Timetable:departures"],
            "Exchange:convert": ["Timetable:ticket_price"],
        }
        assert len(set(each["distraction_servers"])) == 10
        assert not {"Timetable", "Exchange"} & set(each["distraction_servers"])
    # generation, fuzzing and gate of each; all again for task 2, only the fuzzy text for task 3
    assert sorted(maker.author.stages) == sorted(["generation"] * 4 + ["fuzzing"] * 5 + ["gate"] * 4)
    rejected = {each["task_id"][-1]: each for each in maker.verdicts() if not each["accepted"]}
    assert rejected["1"]["quality"]["solvability"] == 7
    assert [reason["kind"] for reason in rejected["1"]["reasons"]] == ["solvability"]
    assert [reason["kind"] for reason in rejected["2"]["reasons"]] == ["name"]
    assert "ticket_price" in rejected["2"]["fuzzy"]

    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--model", "demo", "tasks.json"],
        cwd=maker.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    ids = [line for line in collected.stdout.splitlines() if "::" in line]
    assert len(ids) == 3, collected.stdout + collected.stderr
    assert all(f"timetable_exchange_00{n}" in ids[n] for n in range(3))

    before, asked = maker.file.read_bytes(), len(maker.author.asked)
    again = maker.make("--count", "3")
    assert again.returncode == 0
    assert "3 of them existed before" in again.stdout
    assert (maker.file.read_bytes(), len(maker.author.asked)) == (before, asked)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_killed_process_pays_only_the_request_in_flight_again(maker: Maker, at: int) -> None:
    """A task that the gate rejects at first takes six requests. The process is killed as it waits for the `at`-th."""
    waiting = threading.Event()

    def choose(message: str, nth: int) -> str:
        if len(maker.endpoint.requests) < at - 1 or waiting.is_set():
            return "ok"
        waiting.set()
        return "hang"

    maker.author.gate = lambda prompt: scores(7, 8) if "Trip 1-0" in prompt else scores(9.5, 7)
    maker.endpoint.choose = choose
    with subprocess.Popen(maker.command(), cwd=maker.folder, stdout=subprocess.DEVNULL) as process:
        assert waiting.wait(60)
        process.send_signal(signal.SIGKILL)
    assert maker.tasks() == []
    assert maker.make().returncode == 0
    assert [each["task_description"][:8] for each in maker.tasks()] == ["Trip 1-1"]
    assert len(maker.endpoint.requests) == 6 + 1


def test_a_half_written_draft_of_a_killed_process_is_ignored(maker: Maker) -> None:
    assert maker.make().returncode == 0
    whole = maker.drafts.read_bytes()
    maker.file.unlink()
    maker.drafts.write_bytes(whole[:-1].rpartition(b"\n")[0] + b'\n{"kind": "verdict", "task')
    asked = len(maker.author.asked)
    assert maker.make().returncode == 0
    assert len(maker.author.asked) == asked
    assert len(maker.tasks()) == 1


def test_a_task_that_is_taken_out_is_made_anew_and_a_lost_file_comes_back(maker: Maker) -> None:
    assert maker.make("--count", "2").returncode == 0
    first, second = maker.tasks()
    whole, asked = maker.file.read_bytes(), len(maker.author.asked)
    maker.file.unlink()
    assert maker.make("--count", "2").returncode == 0
    assert (maker.file.read_bytes(), len(maker.author.asked)) == (whole, asked)

    document = json.loads(whole)
    document["server_tasks"][0]["tasks"].remove(first)
    document["notes"] = "checked by Ann"
    maker.file.write_text(json.dumps(document), encoding="utf-8")
    done = maker.make("--count", "2")
    assert done.returncode == 0, done.stderr
    assert "removed by hand 1" in done.stdout
    new, kept = maker.tasks()
    assert new["task_id"] == first["task_id"]
    assert new["task_description"] != first["task_description"]
    assert kept == second
    assert json.loads(maker.file.read_bytes())["notes"] == "checked by Ann"
    assert len(maker.author.asked) == asked + 3


def test_a_command_interrupted_by_ctrl_c_can_be_continued(maker: Maker) -> None:
    waiting = threading.Event()

    def choose(message: str, nth: int) -> str:
        if "Trip 2-0" in message and message.startswith("Assess"):
            waiting.set()
            return "hang"
        return "ok"

    maker.endpoint.choose = choose
    command = maker.command("--count", "2")
    with subprocess.Popen(
        command, cwd=maker.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("timetable_exchange_000 draft 1 accepted")
        assert waiting.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "1 of 2 tasks in tasks.json" in out
    assert "interrupted; the same command goes on from here" in err
    assert len(maker.tasks()) == 1
    maker.endpoint.choose = lambda message, nth: "ok"
    asked = len(maker.author.asked)
    assert maker.make("--count", "2").returncode == 0
    assert maker.author.stages[asked:] == ["gate"]


def test_a_reader_who_has_seen_enough_ends_it_without_complaint(maker: Maker) -> None:
    waiting, closed = threading.Event(), threading.Event()

    def gate(prompt: str) -> str:
        waiting.set()
        assert closed.wait(60)
        return scores(9.5, 7)

    maker.author.gate = gate
    command = maker.command("--count", "2")
    with subprocess.Popen(command, cwd=maker.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert waiting.wait(60)
        process.stdout.close()
        closed.set()
        assert process.stderr.read() == b""
    assert maker.make("--count", "2").returncode == 0


@pytest.mark.parametrize("maker", [Author(gate=lambda prompt: scores(7, 8))], indirect=True)
def test_a_task_is_given_up_after_five_retries(maker: Maker) -> None:
    done = maker.make()
    assert done.returncode == 1
    assert maker.author.stages == ["generation", "fuzzing", "gate"] * 6
    assert "0 of 1 tasks" in done.stdout
    assert "6 drafts rejected: solvability 6" in done.stdout
    assert "given up: solvability: scored 7, expected at least 9: about the tools" in done.stderr
    assert not maker.file.exists()
    again = maker.make()
    assert (again.returncode, len(maker.author.asked)) == (1, 18)


def unreadable_at_first(assessment: str) -> Author:
    """The gate answers so for the first draft, and as it should for the next."""
    return Author(gate=lambda prompt: assessment if "Trip 1-0" in prompt else scores(9.5, 7))


@pytest.mark.parametrize(
    ("maker", "said"),
    [
        (unreadable_at_first("It's great: 10/10."), "not JSON"),
        (unreadable_at_first(scores("9.5", 9)), "solvability_score"),
        (unreadable_at_first(scores(True, 9)), "solvability_score"),
        (unreadable_at_first(scores(9.5, 11)), "utility_score"),
    ],
    indirect=["maker"],
)
def test_an_assessment_that_cannot_be_read_is_asked_for_again_and_rejected(maker: Maker, said: str) -> None:
    done = maker.make()
    assert done.returncode == 0, done.stderr
    assert maker.author.stages == ["generation", "fuzzing", *["gate"] * 3, "generation", "fuzzing", "gate"]
    rejected, accepted = maker.verdicts()
    [reason] = rejected["reasons"]
    assert reason["kind"] == "unparseable"
    assert said in reason["text"]
    assert "quality" not in rejected
    assert accepted["accepted"]


def circular(prompt: str) -> str:
    if "found the circle" in prompt:
        return task("Trip 1-0")
    back = {"tool": "Timetable:departures", "prerequisites": ["Exchange:convert"]}
    return task("Trip 1-0", dependencies=[*json.loads(task(""))["dependencies"], back])


def unknown(prompt: str) -> str:
    if "found 'Timetable:fly'" in prompt:
        return task("Trip 1-0")
    return task("Trip 1-0", dependencies=[{"tool": "Timetable:fly", "prerequisites": []}])


@pytest.mark.parametrize("maker", [Author(generation=circular), Author(generation=unknown)], indirect=True)
def test_dependencies_are_of_known_tools_and_without_circles(maker: Maker) -> None:
    done = maker.make()
    assert done.returncode == 0, done.stderr
    assert maker.author.stages == ["generation", "generation", "fuzzing", "gate"]
    assert set(maker.tasks()[0]["dependencies"]) == {"Timetable:ticket_price", "Exchange:convert"}


def unused(prompt: str) -> str:
    analysis = "Timetable alone."
    return task("", task_description="Trip 1: Timetable:departures", dependency_analysis=analysis, dependencies=[])


@pytest.mark.parametrize("maker", [Author(generation=unused)], indirect=True)
def test_a_task_that_leaves_a_server_out_costs_no_further_stage(maker: Maker) -> None:
    done = maker.make()
    assert done.returncode == 1
    assert maker.author.stages == ["generation"] * 6
    assert "unused server 6" in done.stdout
    assert "'Exchange'" in done.stderr


def test_two_tasks_with_the_same_text_are_one_too_many(maker: Maker) -> None:
    maker.author.generation = lambda prompt: task("Trip same")
    done = maker.make("--count", "2")
    assert done.returncode == 1
    assert "1 of 2 tasks" in done.stdout
    assert "repetition" in done.stdout
    assert len(maker.tasks()) == 1


def test_the_budget_ends_a_call_and_the_next_goes_on(maker: Maker) -> None:
    """A reply has 15 tokens for 1000 USD a million: 0.015 USD."""
    done = maker.make("--max-cost", "0.03")
    assert done.returncode == 1
    assert maker.author.stages == ["generation", "fuzzing"]
    assert "not made: the budget is used up: 0.0300 of 0.0300 USD (--max-cost)" in done.stderr
    costs = {
        line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line[:3] in ("gen", "gat", "tot")
    }
    assert costs == {
        "generation": ["1", "10", "5", "0.0150"],
        "gate": ["0", "0", "0", "0.0000"],
        "total": ["2", "20", "10", "0.0300"],
    }
    assert maker.make("--max-cost", "0.03").returncode == 0
    assert maker.author.stages == ["generation", "fuzzing", "gate"]


def test_combinations_of_a_file(maker: Maker) -> None:
    combinations = {
        "two_server_combinations": [
            {"name": "Fares", "servers": ["Timetable", "Exchange"], "description": "Trains and money"},
            {"name": "Absent", "servers": ["Timetable", "Teleport"], "description": "Not here"},
            {"name": "Broken", "servers": ["Library", "Other 03"], "description": "No program"},
        ]
    }
    file = maker.folder / "combinations.json"
    file.write_text(json.dumps({"mcp_server_combinations": combinations}), encoding="utf-8")
    done = maker.make("--combinations", "combinations.json", servers=None)
    assert done.returncode == 1
    assert "1 of 3 tasks" in done.stdout
    assert "no tasks for 'Absent': it needs Teleport" in done.stderr
    assert "found 'Teleport', expected a server that is declared" in done.stderr
    assert "no tasks for 'Broken': it needs Other 03" in done.stderr
    assert "not-installed-here" in done.stderr
    [group] = json.loads(maker.file.read_text())["server_tasks"]
    assert {name: group[name] for name in group if name != "tasks"} == {
        "server_name": "Timetable+Exchange",
        "servers": ["Timetable", "Exchange"],
        "combination_name": "Fares",
        "combination_type": "two_server",
    }
    prompt = maker.author.asked[0][1]
    assert "Trains and money" in prompt
    assert "dependencies between them" in prompt
    maker.make(servers="Library")
    assert [each["task_id"] for each in maker.tasks()] == ["timetable_exchange_000"]  # Library is never named


def chinese() -> Author:
    return Author(
        generation=lambda prompt: task("Trip 甲"),
        fuzzing=lambda prompt: "我下周要出差,不知道路上得花多少钱?",
    )


@pytest.mark.parametrize("maker", [chinese()], indirect=True)
def test_tasks_in_chinese(maker: Maker) -> None:
    done = maker.make("--language", "zh")
    assert done.returncode == 0, done.stderr
    assert maker.tasks()[0]["fuzzy_description"].startswith("我下周")
    assert all("请" in prompt and "Reply with" not in prompt for _, prompt in maker.author.asked)


def test_a_secret_reaches_neither_the_model_nor_the_drafts(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKET_API_KEY", "tk-0123456789abcdef-secret")
    server = (maker.folder / "server.py").read_text(encoding="utf-8")
    leaking = server.replace("Find stations by", "Key tk-0123456789abcdef-secret. Find stations by")
    assert leaking != server
    (maker.folder / "server.py").write_text(leaking, encoding="utf-8")
    maker.author.generation = lambda prompt: task("Trip 1-0 with tk-0123456789abcdef-secret")
    maker.author.fuzzing = lambda prompt: "What would trip 1-0 cost with tk-0123456789abcdef-secret?"
    assert maker.make().returncode == 0
    assert maker.tasks()[0]["fuzzy_description"] == "What would trip 1-0 cost with [redacted]?"
    assert maker.author.stages == ["generation", "fuzzing", "gate"]
    assert "[redacted]. Find stations by" in maker.author.asked[0][1]
    assert all("tk-0123456789abcdef-secret" not in prompt for _, prompt in maker.author.asked)
    for path in maker.folder.rglob("*.json*"):
        assert "tk-0123456789abcdef-secret" not in path.read_text(encoding="utf-8"), path


def test_a_failed_endpoint_is_reported_and_no_task_is_rejected(maker: Maker) -> None:
    maker.endpoint.choose = lambda message, nth: "401"
    done = maker.make("--count", "2")
    assert done.returncode == 1
    assert "not made: " in done.stderr
    assert "Incorrect API key" in done.stderr
    assert "rejected" not in done.stdout
    maker.endpoint.choose = lambda message, nth: "ok"
    assert maker.make("--count", "2").returncode == 0


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--servers", "Timetable,,Exchange"], 1, "expected names of servers"),
        (["--servers", ""], 1, "expected names of servers"),
        (["--servers", "Timetable", "--output", "tasks.yaml"], 2, "expected a .json file"),
        (["--servers", "Timetable", "--count", "0"], 2, "at least 1"),
        (["--combinations", "servers.yaml"], 1, "mcp_server_combinations"),
        (["--combinations", "none.json"], 1, "none.json"),
        (["--servers", "Timetable", "--combinations", "none.json"], 2, "not allowed with"),
        ([], 2, "required"),
    ],
)
def test_wrong_usage(maker: Maker, options: list[str], status: int, said: str) -> None:
    done = maker.make(*options, servers=None)
    assert (done.returncode, maker.author.asked) == (status, [])
    assert said in done.stderr


def test_a_task_file_whose_servers_are_declared_elsewhere(maker: Maker) -> None:
    done = maker.make("--output", "../away/tasks.json")
    assert done.returncode == 0, done.stderr
    assert "tasks.json declares Exchange, Timetable: sessions need a run profile that declares them" in done.stderr


def test_one_call_at_a_time_for_a_file(maker: Maker) -> None:
    with Drafts.open(maker.drafts, "author", "en", Redactor({})):
        done = maker.make()
    assert (done.returncode, maker.author.asked) == (1, [])
    assert "another process makes tasks for this file" in done.stderr


def test_nothing_is_asked_where_replies_cannot_be_kept(maker: Maker) -> None:
    maker.drafts.mkdir()
    done = maker.make()
    assert (done.returncode, maker.author.asked) == (1, [])
    assert f"{maker.drafts}: cannot be written: Is a directory" in done.stderr


def test_servers_whose_tasks_would_have_the_same_ids(maker: Maker) -> None:
    with (maker.folder / "servers.yaml").open("a", encoding="utf-8") as file:
        own = f"{{command: {sys.executable}, args: [server.py, timetable], cwd: ., sandbox: local}}"
        file.write(f"\n  timetable: {own}\n")
    maker.author.generation = lambda prompt: task("Trip", task_description="Timetable:departures", dependencies=[])
    maker.author.fuzzing = lambda prompt: "When does it leave?"
    assert maker.make(servers="Timetable").returncode == 0
    done = maker.make(servers="timetable")
    assert done.returncode == 1
    assert "would have the same ids (timetable_000, ...)" in done.stderr


def test_a_file_of_something_else_is_not_overwritten(maker: Maker) -> None:
    maker.file.write_text('{"server_tasks": "mine"}', encoding="utf-8")
    done = maker.make()
    assert (done.returncode, maker.author.asked) == (1, [])
    assert "tasks.json:1:18" in done.stderr
    assert maker.file.read_text(encoding="utf-8") == '{"server_tasks": "mine"}'


def test_a_file_that_becomes_something_else_meanwhile_is_not_overwritten(maker: Maker) -> None:
    def replace(prompt: str) -> str:
        maker.file.write_text('{"name": "my-app"}', encoding="utf-8")
        return scores(9.5, 7)

    maker.author.gate = replace
    done = maker.make()
    assert done.returncode == 1
    assert "timetable_exchange_000: not made: " in done.stderr
    assert "tasks.json:1:1: server_tasks: " in done.stderr
    assert "name another file with --output" in done.stderr
    assert maker.file.read_text(encoding="utf-8") == '{"name": "my-app"}'
    maker.file.unlink()
    assert maker.make().returncode == 0
    assert maker.author.stages == ["generation", "fuzzing", "gate"]
