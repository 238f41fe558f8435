"""Several processes that use one output folder at once, are killed or forked."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys

import pytest
from store_samples import ASIDE, FOLDER, LARGE, NAMES, RUN, in_child, run_child
from support.stored import list_stored

from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.output_folder import DATABASE


def test_processes_see_each_others_documents(documents, tmp_path):
    assert documents.read(RUN) is None
    run_child(f"documents.put({RUN!r}, b'theirs')", tmp_path)
    assert documents.read(RUN) == b"theirs"
    documents.put(RUN, b"mine")
    assert run_child(f"print(documents.read({RUN!r}))", tmp_path) == "b'mine'\n"


def test_processes_see_each_others_large_documents(documents, tmp_path):
    documents.put(ASIDE, b"mine")
    assert documents.read(RUN) is None
    run_child(f"documents.put({RUN!r}, b'x' * (LARGEST + 1))", tmp_path)
    assert documents.read(RUN) == LARGE
    assert dict(documents.find(FOLDER, NAMES)) == {RUN: LARGE, ASIDE: b"mine"}


WRITER = """
import random
for number in range(200):
    large = number % 20 == 0
    path = f"runs/suit_{number % 3}/profile/gpt/case{number % 50}/run_{number}.{sys.argv[2]}.json"
    documents.put(path, sys.argv[2].encode() * (LARGEST + 1 if large else 10))
"""


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(documents, tmp_path):
    """None of them finds a database: one makes it."""
    writers = [subprocess.Popen(in_child(WRITER, tmp_path, letter)) for letter in "abcd"]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    paths = list_stored(tmp_path)
    assert len(paths) == 4 * 200
    assert all(set(documents.read(path)) == {ord(path.rsplit(".", 2)[1])} for path in paths)


KILLED = f"""
print("writing", flush=True)
while True:
    for digit in b"0123456789":
        with documents.writing():
            documents.put({RUN!r}, bytes([digit]) * 30_000)
            documents.put({ASIDE!r}, bytes([digit]) * 30_000)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_leaves_whole_steps(documents, tmp_path):
    for _ in range(10):
        with contextlib.ExitStack() as ended:
            process = ended.enter_context(
                subprocess.Popen(in_child(KILLED, tmp_path), stdout=subprocess.PIPE, text=True)
            )
            ended.callback(process.kill)
            assert process.stdout.readline() == "writing\n"
            while documents.read(RUN) in (None, b"after"):
                assert process.poll() is None
            for _ in range(random.randrange(300)):
                documents.read(RUN)
            process.send_signal(signal.SIGKILL)
        [(_, run), (_, aside)] = documents.find(FOLDER, NAMES)
        assert len(set(run)) == 1
        assert run == aside
        documents.put(RUN, b"after")  # the log that was left is no obstacle
        assert documents.read(RUN) == b"after"
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_the_log_of_a_killed_process_is_recovered_by_the_next(tmp_path):
    code = f"documents.put({RUN!r}, b'paid')\nprint(os.path.getsize(sys.argv[1] + '/store.sqlite-wal'), flush=True)\n"
    with subprocess.Popen(
        in_child(code + "sys.stdin.read()", tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert int(process.stdout.readline()) > 0
        process.kill()
    assert (tmp_path / f"{DATABASE}-wal").stat().st_size > 0
    documents = open_documents(tmp_path)
    assert documents.read(RUN) == b"paid"
    documents.close()
    assert os.listdir(tmp_path) == [DATABASE]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_connection_of_its_own(documents, tmp_path):
    documents.put(RUN, b"parent's")
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            found = documents.read(RUN)
            documents.put(ASIDE, b"child's")
            documents.close()
            os._exit(0 if found == b"parent's" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    documents.put(RUN, b"parent's, again")
    assert dict(documents.find(FOLDER, NAMES)) == {RUN: b"parent's, again", ASIDE: b"child's"}


OPEN_AT_ONCE = """
import sys
from pytest_agentbench.store.database import open_documents

documents = open_documents(sys.argv[1])
sys.stdin.read(1)
documents.put(f"runs/s/p/m/c{sys.argv[2]}/run_1.json", b"{}")
"""


@pytest.mark.slow
def test_processes_that_make_the_database_at_once_all_store(tmp_path):
    for number in range(10):
        output = tmp_path / str(number)
        command = [sys.executable, "-c", OPEN_AT_ONCE, str(output)]
        processes = [
            subprocess.Popen([*command, str(each)], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for each in range(6)
        ]
        for process in processes:
            process.stdin.write(b"x")
            process.stdin.flush()
        said = [process.communicate(timeout=60)[1].decode() for process in processes]
        assert [process.returncode for process in processes] == [0] * 6, said
        assert len(open_documents(output).folders("runs/s/p/m")) == 6
