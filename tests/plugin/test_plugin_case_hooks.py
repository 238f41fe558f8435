"""`setup` and `teardown` of a case: commands before its agent starts and after its verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import HEAD
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker

AGENT = (
    HEAD
    + """
def agent(case, context):
    note("runs.txt", case.case_id)
    text = context.workspace.read_text("seed.txt")
    if case.metadata.get("crashes"):
        raise RuntimeError("the agent broke")
    context.workspace.write_text("seed.txt", text + "by the agent\\n")
    return "done"
"""
)


@pytest.fixture
def project(bench):
    bench.agent(AGENT)
    bench.profile("plain", sandbox="local")
    return bench


def hooked(bench, case_id="one", *, setup="echo seed > seed.txt", **fields):
    checks = [{"check_id": "kept", "declarative": {"kind": "file_contains", "path": "seed.txt", "text": "agent"}}]
    bench.case(case_id, **{"setup": setup, "deterministic_checks": checks, **fields})


def run(bench, *args):
    return bench.run("--agentbench-run-profile", "plain", *args)


def stored_run(bench, row):
    return json.loads((bench.path / "outputs" / row["artifact"]).read_text())


def test_setup_prepares_the_workspace_and_is_no_change_of_the_agent(project):
    hooked(project, setup="echo prepared; echo seed > seed.txt; echo more > other.txt")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed"}
    artifact = stored_run(project, finished.runs["one[agent]"])
    assert [(each["path"], each["change"]) for each in artifact["changes"]] == [("seed.txt", "modified")]
    assert artifact["changes"][0]["diff"] == "@@ -1 +1,2 @@\n seed\n+by the agent\n"
    event = artifact["trace"][0]
    assert (event["name"], event["data"]["exit_code"], event["data"]["output"]) == ("setup", 0, "prepared\n")


def test_a_failed_setup_is_an_error_of_the_case_and_starts_no_agent(project):
    hooked(project, setup="echo no such table >&2; false; echo never")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "test.yaml:15:8: setup: the command ended with exit code 1, expected 0; it printed: no such table" in (
        finished.text
    )
    assert "never" not in finished.text
    assert project.lines("runs.txt") == []


@pytest.mark.slow
def test_the_error_of_a_setup_that_prints_megabytes_shows_the_end_of_its_output(project):
    hooked(project, "lines", setup="seq 100000; printf '\\033[2Jno space left'; exit 1")
    hooked(project, "line", setup="head -c 2000000 /dev/zero | tr '\\0' x; echo ' no memory left'; exit 1")
    text = run(project).text
    assert "it printed at the end:\n  99982\n" in text
    assert "\n  100000\n  \\x1b[2Jno space left\n" in text
    assert "xxx no memory left" in text
    assert len(text) < 10_000


def test_a_slow_setup_is_stopped_at_its_time_limit(project):
    hooked(project, setup={"command": ["sleep", "60"], "timeout_seconds": 0.2})
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "setup: the command had not ended after timeout_seconds (0.2 s)" in finished.text


def test_teardown_runs_after_the_verdict_and_cannot_change_it(project, tmp_path_factory):
    left = tmp_path_factory.mktemp("left") / "seed.txt"
    hooked(project, teardown=f"mv seed.txt {left}; echo could not release it >&2; exit 3")
    finished = run(project)
    assert (finished.exit, finished.outcomes) == (0, {"one[agent]": "passed"})
    assert left.read_text() == "seed\nby the agent\n"
    [warning] = [text for text in finished.report["session"]["warnings"] if "teardown" in text]
    assert "cases/one/test.yaml:16:11: teardown: the command ended with exit code 3" in warning
    assert "it printed: could not release it" in warning


@pytest.mark.slow
def test_the_output_of_teardown_is_shown_once_if_the_run_failed(project):
    hooked(project, setup="true", teardown="echo released the table")
    finished = run(project, "--agentbench-strict")
    assert finished.text.count("released the table") == 1


@pytest.mark.slow
def test_hooks_of_a_dataset_run_for_each_of_its_rows(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    descriptor = {"schema_version": 1, "files": ["rows.jsonl"], "metrics": [{"name": "exact_match", "threshold": 1}]}
    hooks = {"setup": "echo seed > seed.txt", "teardown": f"cat seed.txt >> {ended}; exit 3"}
    project.write("cases/dataset.yaml", descriptor | hooks)
    rows = [{"id": name, "question": f"{name}?", "answer": "done"} for name in ("one", "two")]
    project.rows("cases/rows.jsonl", *rows)
    finished = run(project)
    assert finished.outcomes == {"rows.one[agent]": "passed", "rows.two[agent]": "passed"}
    assert ended.read_text() == "seed\nby the agent\n" * 2
    assert stored_run(project, finished.runs["rows.two[agent]"])["trace"][0]["name"] == "setup"
    # Both rows have the same warning, which is printed once
    assert finished.text.count("cases/dataset.yaml:8:11: teardown: the command ended with exit code 3") == 1
    project.write("cases/dataset.yaml", descriptor | {"setup": "exit 1"})
    finished = run(project)
    assert set(finished.outcomes.values()) == {"error"}
    assert "cases/dataset.yaml:7:8: setup: the command ended with exit code 1" in finished.text


@pytest.mark.slow
def test_teardown_runs_once_for_each_run_that_began(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    hooked(project, "crashed", teardown=f"echo crashed >> {ended}", metadata={"crashes": True})
    hooked(project, "unprepared", setup="exit 1", teardown=f"echo unprepared >> {ended}")
    hooked(project, "whole", teardown=f"echo whole >> {ended}")
    assert run(project).outcomes == {
        "crashed[agent]": "error",
        "unprepared[agent]": "error",
        "whole[agent]": "passed",
    }
    assert sorted(ended.read_text().split()) == ["crashed", "unprepared", "whole"]
    hooked(project, "whole", teardown=f"echo again >> {ended}")
    finished = run(project, "-k", "whole")
    assert finished.runs["whole[agent]"]["reused"]
    assert "again" not in ended.read_text()


@pytest.mark.slow
def test_an_edited_setup_makes_the_run_again(project):
    hooked(project)
    run(project)
    hooked(project, setup={"command": "echo seed > seed.txt", "timeout_seconds": 5})
    assert run(project).runs["one[agent]"]["reused"]
    hooked(project, setup="echo another seed > seed.txt")
    assert not run(project).runs["one[agent]"]["reused"]
    assert project.lines("runs.txt") == ["one", "one"]


def test_mistakes_of_hooks_are_named_with_their_place(project):
    hooked(project, setup=["sort", "raw.csv"], teardown={"comand": "true"})
    text = run(project).text
    assert "setup: found ['sort', 'raw.csv'], expected a mapping" in text
    assert "teardown.comand: unknown field; did you mean 'command'?" in text


def test_predictions_run_no_hooks(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    hooked(
        project,
        setup=f"touch {ended}",
        teardown=f"touch {ended}",
        deterministic_checks=None,
        reference="done",
        metrics=[{"name": "exact_match", "threshold": 1.0}],
    )
    project.write("answers.json", '{"one": "done"}')
    finished = run(project, "--agentbench-predictions", "answers.json")
    assert list(finished.outcomes.values()) == ["passed"]
    assert not ended.exists()


def test_a_case_with_hooks_is_skipped_without_a_sandbox(project):
    project.profile("plain", sandbox={"type": "docker"})
    hooked(project, setup=None, teardown="true")
    finished = run(project, "-rs")
    assert finished.outcomes == {"one[agent]": "skipped"}
    assert "no image is named" in finished.text
    assert project.lines("runs.txt") == []


def test_hooks_of_a_guest_do_not_run_on_this_machine(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    project.write("cases/vendor/models.yaml", {"schema_version": 1})
    project.write("cases/vendor/dataset.yaml", {"schema_version": 1, "files": ["r.jsonl"], "setup": f"touch {ended}"})
    project.rows("cases/vendor/r.jsonl", {"id": "row", "question": "Go?", "answer": "done"})
    hooked(project, "vendor/one", setup=f"touch {ended}")
    Path(project.path / "cases/vendor/one/test.yaml").write_text(
        (project.path / "cases/vendor/one/test.yaml").read_text().replace("vendor/one", "one")
    )
    finished = run(project, "cases")
    assert finished.outcomes == {"one[agent]": "error", "r.row[agent]": "error"}
    messages = [row["message"] for row in finished.report["runs"]]
    assert all("found commands of a folder that is not trusted" in message for message in messages), messages
    assert not ended.exists()


def test_teardown_runs_for_a_run_that_the_session_stops(project, tmp_path_factory):
    ended = tmp_path_factory.mktemp("left") / "ended"
    project.agent(
        HEAD
        + """
import asyncio

STARTED = asyncio.Event()

async def agent(case, context):
    if case.case_id == "fails":
        await STARTED.wait()
        return "no file"
    STARTED.set()
    await asyncio.sleep(60)
"""
    )
    project.profile("plain", sandbox="local", policy={"max_concurrency": 2})
    hooked(project, "fails")
    hooked(project, "waits", teardown=f"echo released > {ended}")
    finished = run(project, "-x")
    assert finished.outcomes["fails[agent]"] == "failed"
    assert ended.read_text() == "released\n"


@needs_bubblewrap
@pytest.mark.slow
def test_hooks_see_nothing_but_the_workspace_in_a_sandbox(project, tmp_path_factory):
    left = tmp_path_factory.mktemp("left") / "seed.txt"
    project.profile("plain", sandbox="bubblewrap")
    hooked(project, setup="pwd > seed.txt", teardown=f"touch {left}")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "passed"}
    diff = stored_run(project, finished.runs["one[agent]"])["changes"][0]["diff"]
    assert "\n /workspace\n+by the agent" in diff
    assert not left.exists()


SHOP = """
from http.server import BaseHTTPRequestHandler, HTTPServer

stock = [b"nothing"]

class Shop(BaseHTTPRequestHandler):
    def do_POST(self):
        stock[0] = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(stock[0])

HTTPServer(("", 8000), Shop).serve_forever()
"""
"""A service that answers with the last text that it was sent."""


@needs_docker
@pytest.mark.slow
def test_hooks_run_in_containers_of_the_image_the_dockerfile_and_the_services(bench):
    """The agent has the container of its setup, and teardown another one with the same /tmp and new services."""
    health = {"test": ["CMD", "python3", "-c", CONNECT], "interval": "1s"}
    bench.write("cases/services/services.yaml", {"services": {"shop": {"build": "./shop", "healthcheck": health}}})
    bench.write("cases/services/shop/shop.py", SHOP)
    bench.write("cases/services/shop/Dockerfile", f'FROM {IMAGE}\nCOPY shop.py /\nCMD ["python3", "/shop.py"]\n')
    bench.write("cases/built/image/Dockerfile", f"FROM {IMAGE}\nRUN echo built > /made\n")
    in_container(bench, "image", "echo prepared > /tmp/made", "cat /tmp/made", "ls /tmp/made")
    in_container(
        bench, "built", "cp /made seed.txt", "cat seed.txt", "cat /made seed.txt", dockerfile="image/Dockerfile"
    )
    fetch = f'python3 -c "{ASK}"'
    in_container(bench, "services", f"{fetch} apples", fetch, fetch, compose="services.yaml")
    bench.profile("contained", sandbox={"type": "docker", "image": IMAGE})
    finished = bench.run("--model", "demo", "--agentbench-run-profile", "contained")
    assert set(finished.outcomes.values()) == {"passed"}
    answers = {row["case_id"]: command_output(stored_run(bench, row)) for row in finished.runs.values()}
    assert answers == {"image": "prepared", "built": "built", "services": "apples"}
    warnings = "\n".join(finished.report["session"]["warnings"])
    assert "it printed: /tmp/made" in warnings
    assert r"it printed: built\nbuilt" in warnings
    assert "it printed: nothing" in warnings


CONNECT = "import socket; socket.create_connection(('127.0.0.1', 8000))"
ASK = (
    "import sys, urllib.request as web; sent = ''.join(sys.argv[1:]).encode() or None; "
    "print(web.urlopen('http://shop:8000', sent, timeout=20).read().decode())"
)
"""A program that sends its argument to the service, if it has one, and prints the answer."""


def in_container(bench, name, setup, command, teardown, **sandbox):
    """Write a case whose agent runs the command, and whose teardown fails, so that a warning shows its output."""
    asked = {"messages": [{"role": "user", "content": "Go on."}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
    hooks = {"setup": setup, "teardown": f"{teardown}; exit 3"}
    bench.case(name, input=asked, sandbox=sandbox or None, **hooks)
    call = {"tool_calls": [{"name": "exec_shell", "arguments": {"command": command}}]}
    replies = [{"steps": [call, {"content": "Paris"}]}]
    bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": replies})


def command_output(artifact):
    [content] = [event["content"] for event in artifact["trace"] if event["type"] == "tool_result"]
    return content.removesuffix("[exit code 0]").strip()
