"""`agentbench watch` over HTTP: the data of sessions, and refused requests."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.random_reports import MODELS, random_rows
from support.watching import BEGUN, SPENT, row, watching

from pytest_agentbench.cli import main
from pytest_agentbench.cli.live_session import LiveData
from pytest_agentbench.reports.journal import Journal, journals
from pytest_agentbench.reports.report import build_report


class Session:
    """A session of `runs` runs that is under way."""

    def __init__(self, output: Path, runs: int) -> None:
        self.journal = Journal(output, BEGUN, pytest.fail)
        self.journal.plan(runs)
        self.rows: list[dict] = []

    @property
    def name(self) -> str:
        return self.journal.path.name.removesuffix(".journal")

    def report(self, *rows: dict) -> None:
        for each in rows:
            self.journal.row(each, len(self.rows), SPENT)
            self.rows.append(each)

    def end(self, **facts: object) -> None:
        self.journal.end(build_report(self.rows, {**BEGUN, "exit_status": 0, **facts}, SPENT))

    def die(self) -> None:
        self.journal.close()


@pytest.fixture
def output(tmp_path):
    return tmp_path / "outputs"


@pytest.fixture
def session(output):
    session = Session(output, 4)
    yield session
    session.journal.close()


@pytest.fixture
def data(output):
    """The data of the page: `data()` returns data.json, and tests move its time by hand."""

    class Told:
        now = 0.0

        def __init__(self) -> None:
            self.live = LiveData(output, lambda: self.now)

        def __call__(self, name: str | None = None) -> dict:
            self.now += 1_000
            return json.loads(self.live.data(name).body)

    return Told()


# -- what is told


def test_before_a_session_it_waits(data, output):
    told = data()
    assert told["live"]["state"] == "waiting"
    assert told["live"]["text"] == f"waiting for a session that writes to {output}"
    assert told["report"]["runs"] == []


def test_a_session_is_shown_as_it_goes_on(data, output):
    data()
    session = Session(output, 4)
    assert data()["live"]["text"] == "running: 0 of 4 runs"
    session.journal.progress(2, 2, ["one[gpt]", "two[gpt]"])
    live = data()["live"]
    assert live["text"].startswith("running: 2 of 4 runs, 2 in flight, about ")
    assert live["running"] == ["one[gpt]", "two[gpt]"]
    session.report(row("a"), row("b", "failed"), row("c"))
    told = data()
    assert told["live"]["text"].startswith("running: 3 of 4 runs, 2 in flight")
    assert told["report"]["totals"]["passed"] == 2
    assert told["report"]["session"]["warnings"] == []
    session.report(row("d", "error"))
    session.end(exit_status=1, warnings=["the budget is used up"])
    told = data()
    assert told["live"]["text"] == "ended with exit status 1: 4 runs"
    assert told["report"]["session"]["warnings"] == ["the budget is used up"]
    assert told["report"]["runs"] == session.rows


def test_reused_runs_promise_no_pace(data, session):
    session.report(row("a", reused=True), row("b", reused=True))
    assert data()["live"]["text"] == "running: 2 of 4 runs"


def test_a_killed_session_is_shown_as_killed(data, session):
    session.report(row("a"))
    assert data()["live"]["state"] == "running"
    session.die()
    assert data()["live"]["text"] == ("killed when 1 of 4 runs were reported; start it again: stored runs are reused")


def test_a_session_that_is_started_again_takes_the_place_of_the_last(data, output):
    first = Session(output, 4)
    first.report(row("a"))
    first.die()
    assert data()["live"]["state"] == "killed"
    Session(output, 2).report(row("b"))
    told = data()
    assert (told["live"]["state"], told["live"]["planned"]) == ("running", 2)
    assert [each["case_id"] for each in told["report"]["runs"]] == ["b"]
    assert data.live.data(first.name) is None


def test_two_sessions_in_one_output_folder_are_shown_separately(data, output, session):
    session.report(row("a"))
    other = Session(output, 1)
    other.report(row("b"))
    told = data()
    assert [each["case_id"] for each in told["report"]["runs"]] == ["b"]
    assert told["live"]["sessions"] == [
        {"href": f"/session/{other.name}/", "text": "2026-11-22 10:00:00 UTC: running", "shown": True},
        {"href": f"/session/{session.name}/", "text": "2026-11-22 10:00:00 UTC: running", "shown": False},
    ]
    told = data(session.name)
    assert [each["case_id"] for each in told["report"]["runs"]] == ["a"]
    other.end()
    assert [each["text"].rpartition(" ")[2] for each in data(session.name)["live"]["sessions"]] == ["ended", "running"]


def test_unchanged_data_keep_their_etag_and_are_not_rebuilt(data, session):
    session.report(row("a"))
    first = data.live.data(None)
    data.now += 1_000
    assert data.live.data(None) is first
    session.report(row("b"))
    data.now += 1_000
    assert data.live.data(None).tag != first.tag


def test_a_large_report_is_not_made_anew_at_every_question(data, session):
    session.report(row("a"))
    first = data.live.data(None)
    session.report(row("b"))
    assert data.live.data(None) is first  # no time has passed since
    data.now += 1_000
    assert len(json.loads(data.live.data(None).body)["report"]["runs"]) == 2


@pytest.mark.slow
def test_a_run_is_opened_while_a_large_report_is_being_made(data, session):
    session.report(*random_rows(100, MODELS, 3))
    nodeid = session.rows[0]["nodeid"]
    data()
    session.report(row("another"))
    data.now += 1_000
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(data.live.data, None)
        opened = 0
        while not made.done():
            opened += data.live.detail(None, nodeid) is not None
    assert opened > 10


def test_a_journal_of_another_version_is_left_out(data, output, session):
    session.report(row("a"))
    newer = output / ".journals" / "29990101T000000000000Z-00000000.journal"
    newer.write_text('{"event":"begin","seconds":0,"journal":99,"session":{}}\n')
    assert data()["live"]["planned"] == 4


# -- over HTTP


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A session with a stored run, watched: its folder and where."""
    output = tmp_path_factory.mktemp("project") / "outputs"
    session = Session(output, 4)
    (output / "runs").mkdir()
    (output / "runs" / "run_1.json").write_text(json.dumps({"run_id": "r", "trace": [], "status": "success"}))
    (output.parent / "secret.json").write_text('{"key": "zebra-crossing"}')
    session.report(row("good", artifact="runs/run_1.json"), row("evil", artifact="../secret.json"))
    with watching(output) as found:
        yield output, session, found
    session.journal.close()


@pytest.mark.slow
def test_the_page_is_served_with_its_data(served):
    _, session, watched = served
    page = watched.ask("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert b'data-live="true"' in page.body
    assert b"default-src &#39;none&#39;" in page.body
    data = watched.ask("/data.json")
    assert [each["case_id"] for each in data.json["report"]["runs"]] == ["good", "evil"]
    assert watched.ask(f"/session/{session.name}/data.json").json["report"] == data.json["report"]
    assert watched.ask(f"/session/{session.name}/").body == page.body
    again = watched.ask("/data.json", If_None_Match=data.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert watched.ask("/", method="HEAD").body == b""
    for reply in (page, data):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.slow
def test_details_of_a_run_are_read_from_the_store(served):
    _, _, watched = served
    reply = watched.ask("/run.json?nodeid=cases/t.yaml::good%5Bgpt%5D")
    assert reply.json["run"]["run_id"] == "r"
    assert watched.ask("/run.json?nodeid=cases/t.yaml::nobody%5Bgpt%5D").status == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "/../secret.json",
        "/%2e%2e/secret.json",
        "/session/../../secret.json",
        "/session/..%2f..%2fsecret/data.json",
        "/session//data.json",
        "/session/" + "a" * 5_000 + "/",
        "/.journals/",
        "/data.json/",
        "//data.json",
        "/run.json/../../secret.json",
        "/etc/passwd",
    ],
)
def test_no_path_names_a_file(served, path):
    _, _, watched = served
    reply = watched.ask(path)
    assert reply.status in (404, 400)
    assert b"zebra" not in reply.body


@pytest.mark.slow
@pytest.mark.parametrize("nodeid", ["../secret.json", "runs/run_1.json", "", "%00", "%ff%fe", "a&nodeid=b&x" * 20])
def test_no_question_for_a_run_names_a_file(served, nodeid):
    _, _, watched = served
    assert watched.ask(f"/run.json?nodeid={nodeid}").status in (404, 400)


@pytest.mark.slow
def test_a_row_that_names_a_file_elsewhere_gets_a_note_instead_of_it(served):
    _, _, watched = served
    reply = watched.ask("/run.json?nodeid=cases/t.yaml::evil%5Bgpt%5D")
    assert reply.json["run"] is None
    assert "is outside the output folder" in reply.json["notes"][0]
    assert b"zebra" not in reply.body


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8766", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.7:80", "", "[::]"]
)
def test_a_name_that_was_made_to_point_here_is_refused(served, host):
    _, _, watched = served
    for path in ("/", "/data.json", "/run.json?nodeid=x"):
        reply = watched.ask(path, Host=host)
        assert reply.status in (403, 400)
        assert b"runs" not in reply.body


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1"])
def test_this_machine_may_ask_also_through_a_forwarded_port(served, host):
    _, _, watched = served
    assert watched.ask(Host=host).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(served, method):
    _, _, watched = served
    assert watched.ask("/data.json", method=method).status == 405


@pytest.mark.slow
def test_clients_with_unfinished_requests_do_not_block_others(served):
    _, _, watched = served
    with ExitStack() as open_ones:
        for start in (b"", b"GET / HTTP/1.1\r\nHost: 127", b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n") * 60:
            slow = open_ones.enter_context(socket.create_connection(("127.0.0.1", watched.port)))
            slow.sendall(start)
        begun = time.monotonic()
        assert watched.ask("/data.json").status == 200
        assert time.monotonic() - begun < 5


@pytest.mark.slow
def test_an_invalid_request_ends_only_its_connection(served):
    _, _, watched = served
    for sent in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\r\n" * 9,
    ):
        with socket.create_connection(("127.0.0.1", watched.port), timeout=10) as rude:
            rude.sendall(sent)
            rude.shutdown(socket.SHUT_WR)
            assert b"zebra" not in rude.recv(1_000_000)
    assert watched.ask("/data.json").status == 200


@pytest.mark.slow
def test_it_listens_on_loopback_only(served):
    _, _, watched = served
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    if sys.platform == "linux":
        # Linux has all of 127.0.0.0/8: a machine whose name means 127.0.0.1 has another address to try, too.
        addresses.add("127.0.0.2")
    for address in addresses - {"127.0.0.1"}:
        with socket.socket() as probe:
            # Fails if the port is taken, as it is by a server that listens on all addresses.
            probe.bind((address, watched.port))


def test_a_port_in_use_and_a_file_in_place_of_a_folder_are_refused(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["watch", str(tmp_path), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    (tmp_path / "report.json").write_text("{}")
    assert main(["watch", str(tmp_path / "report.json")]) == 2
    assert "report.json: is no folder; name the output folder of a session" in capsys.readouterr().err


@pytest.mark.slow
def test_a_session_is_killed_and_started_again_while_somebody_looks(tmp_path):
    output = tmp_path / "outputs"
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "many.jsonl").write_text(
        "".join(json.dumps({"id": f"q{n}", "question": "?", "answer": "Paris"}) + "\n" for n in range(4))
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "import asyncio, pathlib, pytest\n"
        "async def agent(case):\n"
        "    if case.case_id.endswith('q2') and not pathlib.Path('go').exists():\n"
        "        await asyncio.sleep(600)\n"
        "    return 'Paris'\n"
        "@pytest.fixture(scope='session')\n"
        "def agentbench_runner():\n"
        "    return agent\n"
    )
    command = [sys.executable, "-m", "pytest", "--agentbench-metric=contains_answer", "-pno:cacheprovider"]
    with watching(output) as watched:
        assert watched.live["state"] == "waiting"
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            while (live := watched.live)["made"] < 3 or live["reported"] < 2:
                assert process.poll() is None
            assert (live["state"], live["planned"], live["reported"]) == ("running", 4, 2)
            process.kill()
            process.wait()
        assert watched.live["state"] == "killed"
        (tmp_path / "go").touch()
        assert subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False).returncode == 0
        told = watched.ask().json
        assert told["live"]["text"] == "ended with exit status 0: 4 runs"
        assert told["report"]["totals"]["reused"] >= 2
        assert told["report"] == json.loads((output / "report.json").read_text())
    assert len(journals(output)) == 1
