"""Workers on other machines, reached by execnet's socket and ssh gateways, with a shared folder as store."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from support.bench import HEAD, LEAN
from support.machines import loopback, namespaces, wait_until

pytestmark = pytest.mark.slow

SECONDS = 180
"""The outer bound of every session here: none may hang."""

AGENT = (
    HEAD
    + """
from pytest_agentbench.distributed import gateways
from pytest_agentbench.engine import limits as lines

gateways.START_SECONDS, lines.SILENT_SECONDS = @start, @silent

async def agent(case):
    begun = time.monotonic()
    await asyncio.sleep(0.05)
    note("ran.txt", f"{os.readlink('/proc/self/ns/net')} {case.case_id} {begun} {time.monotonic()}")
    return "Rome" if case.case_id.endswith(@wrong) else "Paris"
"""
)
VOLATILE = {"duration_seconds", "artifact"}


def project(bench, *, items=60, start=60, silent=120, wrong="none"):
    bench.agent(AGENT.replace("@start", str(start)).replace("@silent", str(silent)).replace("@wrong", repr(wrong)))
    bench.questions(items)
    bench.write("pytest.ini", "[pytest]\ntestpaths = cases\naddopts = --rsyncignore=*\n")


class Session:
    """A session over workers elsewhere, in a process of its own."""

    def __init__(self, bench, *args):
        self.bench = bench
        self.report_path = bench.path / "outputs" / "report.json"
        self.report_path.unlink(missing_ok=True)
        self.out = bench.path / "out.txt"
        command = [sys.executable, "-m", "pytest", *LEAN, "-p", "no:cacheprovider", "-d", *args]
        with self.out.open("w") as out:
            self.process = subprocess.Popen(command, cwd=bench.path, stdout=out, stderr=subprocess.STDOUT)

    def finish(self):
        """The exit status, and the report's runs by case id."""
        try:
            status = self.process.wait(SECONDS)
        finally:
            self.process.kill()
        rows = json.loads(self.report_path.read_text())["runs"] if self.report_path.exists() else []
        return status, {row["case_id"]: row for row in rows}

    @property
    def said(self):
        return self.out.read_text()


def ran(bench):
    """Where each run was made."""
    return [line.split()[0] for line in bench.lines("ran.txt")]


def test_machines_share_one_store(bench):
    project(bench, wrong=".q7")
    serial = bench.spawn("--agentbench-output=serial", "--agentbench-json=outputs/report.json")
    (bench.path / "ran.txt").unlink()
    with namespaces(bench.path, 2) as machines:
        session = Session(bench, *(machine.tx(bench.path) for machine in machines))
        status, rows = session.finish()
    assert status == serial.exit == 1
    kept = [{k: v for k, v in row.items() if k not in VOLATILE} for row in rows.values()]
    assert kept == [{k: v for k, v in row.items() if k not in VOLATILE} for row in serial.runs.values()]
    assert len(set(ran(bench))) == 2  # both took part
    assert os.readlink("/proc/self/ns/net") not in ran(bench)

    with namespaces(bench.path, 2) as machines:  # fresh servers, the same store
        again = Session(bench, *(machine.tx(bench.path) for machine in machines))
        assert again.finish()[0] == 1
    assert len(ran(bench)) == 60
    assert json.loads(session.report_path.read_text())["totals"]["reused"] == 60


def test_limits_hold_over_machines(bench):
    project(bench, items=30)
    with namespaces(bench.path, 2) as machines:
        args = [machine.tx(bench.path) for machine in machines]
        status, rows = Session(bench, *args, "--agentbench-concurrency=3").finish()
    assert (status, len(rows)) == (0, 30)
    flights = [tuple(map(float, line.split()[2:])) for line in bench.lines("ran.txt")]
    assert max(sum(begun <= at < ended for begun, ended in flights) for at, _ in flights) == 3


def test_a_stop_reaches_other_machines(bench):
    project(bench, items=400, wrong=".q0")
    with namespaces(bench.path, 2) as machines:
        args = [machine.tx(bench.path) for machine in machines]
        status, rows = Session(bench, *args, "-x", "--agentbench-concurrency=2").finish()
    assert status != 0
    assert rows["cases/many.q0"]["outcome"] == "failed"
    assert len(ran(bench)) < 100


@pytest.mark.parametrize("how", ["kill", "unplug"])
def test_the_others_take_over_what_a_lost_machine_had(bench, how):
    project(bench, items=300, silent=2)
    with namespaces(bench.path, 3) as machines:
        args = [machine.tx(bench.path) for machine in machines]
        session = Session(bench, *args, "--max-worker-restart=0", "--agentbench-concurrency=6")
        wait_until(lambda: len(set(ran(bench))) == 3, "all have begun")
        getattr(machines[0], how)()
        wait_until(lambda: "gw0] node down" in session.said, "the first loss is noticed")
        getattr(machines[2], how)()
        status, rows = session.finish()
        wait_until(lambda: machines[0].is_idle, "a worker that is cut off ends too")
    assert len(rows) == 300
    assert {row["outcome"] for row in rows.values()} == {"passed"}
    assert status == 0
    assert "worker gw0 crashed and worker restarting disabled" in session.said


def test_every_machine_lost_is_an_end_with_a_reason(bench):
    project(bench, items=300)
    with namespaces(bench.path, 2) as machines:
        session = Session(bench, *(machine.tx(bench.path) for machine in machines), "--max-worker-restart=0")
        wait_until(lambda: len(ran(bench)) > 20, "some runs are made")
        for machine in machines:
            machine.kill()
        status, _ = session.finish()
    assert status == 1
    assert "collected items were never reported" in session.said


def test_a_machine_that_cannot_be_replaced_ends_the_session_with_the_way_out(bench):
    project(bench, items=300)
    with namespaces(bench.path, 2) as machines:
        session = Session(bench, *(machine.tx(bench.path) for machine in machines))
        wait_until(lambda: len(ran(bench)) > 20, "some runs are made")
        machines[0].kill()
        status, _ = session.finish()
    assert status == 1
    refused = "could not be started again: Connection(Refused|Reset)Error"  # reset: by a server that is just dying
    assert re.search(refused, session.said)
    assert "--max-worker-restart=0 lets the other workers take over" in session.said
    assert "INTERNALERROR" not in session.said


def free_port():
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_nobody_listens(bench):
    project(bench)
    port = free_port()
    session = Session(bench, f"--tx=socket=127.0.0.1:{port}//chdir={bench.path}")
    assert session.finish() == (4, {})
    assert f"worker gw0 (socket=127.0.0.1:{port}//chdir={bench.path}) cannot start: ConnectionRefused" in session.said


def test_a_server_that_is_taken_is_no_wait_for_ever(bench):
    project(bench, start=5)
    with loopback(bench.path, free_port()) as machine:
        session = Session(bench, machine.tx(bench.path), machine.tx(bench.path))
        assert session.finish() == (4, {})
    assert "worker gw1 (" in session.said
    assert "no answer within 5 s; a socket server serves one worker at a time" in session.said


def test_an_address_without_an_execnet_server_is_a_usage_error(bench):
    project(bench, start=2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        session = Session(bench, f"--tx=socket=127.0.0.1:{silent.getsockname()[1]}//chdir={bench.path}")
        assert session.finish() == (4, {})
    assert "cannot start: no answer within 2 s" in session.said


def test_files_cannot_be_named(bench):
    project(bench)
    with loopback(bench.path, free_port()) as machine:
        session = Session(bench, machine.tx(bench.path), str(bench.path / "cases"))
        assert session.finish() == (4, {})
    assert "with workers elsewhere name no files: use testpaths" in session.said


BROKEN = """
import os

if "PYTEST_XDIST_WORKER" in os.environ:
    BREAK
"""


@pytest.mark.parametrize(
    ("what", "seconds", "said"),
    [
        ("raise RuntimeError('no licence here')", 60, "no licence here"),
        ("os._exit(3)", 60, "Not properly terminated"),
        ("import threading; threading.Event().wait()", 4, "not ready within 4 s"),
    ],
    ids=["raises", "dies", "hangs"],
)
def test_a_worker_that_never_comes_up(bench, what, seconds, said):
    project(bench, start=seconds)
    source = (bench.path / "conftest.py").read_text()
    bench.write("conftest.py", source + BROKEN.replace("BREAK", what))
    with loopback(bench.path, free_port()) as machine:
        session = Session(bench, machine.tx(bench.path))
        status, rows = session.finish()
    assert (status, rows) == (4, {})
    assert "worker gw0 (socket=" in session.said
    assert said in session.said


@contextmanager
def sshd(folder):
    """A real sshd on loopback. Returns what `--tx` needs to reach it."""
    server = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.access(server, os.X_OK) or shutil.which("ssh") is None:
        pytest.skip("needs sshd and ssh (openssh-server)")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = free_port()
    options = ["UsePAM=no", "StrictModes=no", f"AuthorizedKeysFile={folder}/authorized", f"PidFile={folder}/pid"]
    command = [server, "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", folder / "host"]
    with (folder / "sshd.log").open("w") as log:
        process = subprocess.Popen([*command, *(f"-o{option}" for option in options)], stderr=log)
    config = folder / "ssh_config"
    config.write_text(
        f"Host *\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile {folder}/user\n"
        " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n BatchMode yes\n LogLevel ERROR\n"
    )
    try:
        wait_until(lambda: "listening" in (folder / "sshd.log").read_text(), "sshd")
        yield f"ssh_config={config}//env:PYTHONPATH={os.environ.get('PYTHONPATH', '')}//python={sys.executable}"
    finally:
        process.terminate()
        process.wait(10)


def test_workers_over_ssh(bench, tmp_path_factory):
    project(bench)
    with sshd(tmp_path_factory.mktemp("ssh")) as reached:
        tx = f"--tx=2*ssh=there//{reached}//chdir={bench.path}"
        status, rows = Session(bench, tx).finish()
        assert (status, len(rows)) == (0, 60), (bench.path / "out.txt").read_text()
        again = Session(bench, tx)
        assert again.finish()[0] == 0
    assert json.loads(again.report_path.read_text())["totals"]["reused"] == 60
    assert len(ran(bench)) == 60


def test_a_case_that_ends_its_process_over_ssh(bench, tmp_path_factory):
    project(bench)
    source = (bench.path / "conftest.py").read_text()
    bench.write(
        "conftest.py", source.replace("    begun =", "    if case.case_id.endswith('q31'): os._exit(9)\n    begun =")
    )
    with sshd(tmp_path_factory.mktemp("ssh")) as reached:
        status, rows = Session(bench, f"--tx=2*ssh=there//{reached}//chdir={bench.path}").finish()
    assert status == 1
    assert {case_id for case_id, row in rows.items() if row["outcome"] != "passed"} == {"cases/many.q31"}
    assert len(rows) == 60


def test_an_unknown_host_over_ssh(bench, tmp_path_factory):
    project(bench)
    with sshd(tmp_path_factory.mktemp("ssh")) as reached:
        nowhere = bench.path / "nowhere"
        nowhere.write_text("Host *\n Port 1\n HostName 127.0.0.1\n")
        session = Session(bench, f"--tx=ssh=there//ssh_config={nowhere}//{reached.partition('//')[2]}")
        assert session.finish() == (4, {})
    assert "worker gw0 (ssh=there" in session.said
