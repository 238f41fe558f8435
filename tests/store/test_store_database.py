"""The one database of an output folder, and the files beside it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from support.c_shim import build_shim
from support.small_disk import small_disk
from support.stored import as_files, list_stored

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.artifacts import Writes
from pytest_agentbench.store.connection import VERSION, find_file_system
from pytest_agentbench.store.database import LARGEST, Documents, open_documents
from pytest_agentbench.store.layout import lay_out, lay_out_used
from pytest_agentbench.store.output_folder import DATABASE

FOLDER = "runs/suit_default/run_profile_12345678/gpt/sum"
RUN = f"{FOLDER}/run_1.json"
ASIDE = f"{FOLDER}/run_1.abcdef01.json"
NAMES = ("run_1.json", "run_1.abcdef01.json")
LARGE = b"x" * (LARGEST + 1)


@pytest.fixture
def documents(tmp_path) -> Documents:
    return open_documents(tmp_path)


@pytest.fixture
def asked(tmp_path):
    """Asks the database as another program does."""

    def ask(statement: str, *values: object) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            return database.execute(statement, values).fetchall()

    return ask


def in_child(code: str, *argv: object) -> list[str]:
    prelude = "import os, sys\nfrom pytest_agentbench.store.database import LARGEST, open_documents\n"
    prelude += "documents = open_documents(sys.argv[1])\n"
    return [sys.executable, "-c", prelude + code, *map(str, argv)]


def run_child(code: str, *argv: object, **options) -> str:
    done = subprocess.run(in_child(code, *argv), capture_output=True, text=True, timeout=120, check=True, **options)
    return done.stdout


# -- documents


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00\xff", b"x" * LARGEST, LARGE, LARGE * 20], ids=len)
def test_a_document_is_there_until_it_is_removed(documents, tmp_path, content):
    assert (documents.read(RUN), documents.modified(RUN), documents.size(RUN), documents.names(FOLDER)) == (
        None,
        None,
        0,
        [],
    )
    documents.put(RUN, content)
    assert (documents.read(RUN), documents.size(RUN), documents.names(FOLDER)) == (content, len(content), [NAMES[0]])
    assert (tmp_path / RUN).exists() == (len(content) > LARGEST)
    documents.close()
    assert documents.read(RUN) == content
    documents.remove(RUN)
    assert (documents.read(RUN), documents.names(FOLDER), list_stored(tmp_path)) == (None, [], [])
    documents.remove(RUN)


@pytest.mark.parametrize("first", [b"small", LARGE])
@pytest.mark.parametrize("second", [b"other", LARGE + b"!"])
def test_put_replaces_a_document_completely_and_add_keeps_it(documents, tmp_path, first, second):
    documents.put(RUN, first)
    assert not documents.add(RUN, second)
    assert documents.read(RUN) == first
    documents.put(RUN, second)
    assert (documents.read(RUN), documents.size(RUN)) == (second, len(second))
    assert (tmp_path / RUN).exists() == (len(second) > LARGEST)
    assert list_stored(tmp_path) == [RUN]


@pytest.mark.parametrize("turn", [os.fspath, as_files], ids=["database", "files"])
@pytest.mark.parametrize("content", [b"{}", LARGE], ids=["small", "large"])
def test_moving_a_document_preserves_its_content_and_time(documents, tmp_path, content, turn):
    documents.put(RUN, content)
    turn(tmp_path)
    before = documents.modified(RUN)
    documents.move(RUN, ASIDE)
    assert (documents.read(ASIDE), documents.modified(ASIDE), documents.read(RUN)) == (content, before, None)
    assert list_stored(tmp_path) == [ASIDE]
    documents.move(RUN, ASIDE)  # nothing is there any more
    assert documents.read(ASIDE) == content
    documents.put(RUN, b"new")
    documents.move(RUN, ASIDE)
    assert (documents.read(ASIDE), list_stored(tmp_path)) == (b"new", [ASIDE])


@pytest.mark.parametrize("turn", [os.fspath, as_files], ids=["database", "files"])
def test_touching_a_document_updates_its_time(documents, tmp_path, turn):
    documents.put(RUN, b"{}")
    turn(tmp_path)
    before = documents.modified(RUN)
    time.sleep(0.02)  # a file's time is that of the kernel's last tick: 4 ms, or 10
    documents.touch(RUN)
    assert documents.modified(RUN) > before
    documents.touch(ASIDE)
    assert documents.modified(ASIDE) is None


@pytest.mark.parametrize("turn", [os.fspath, as_files], ids=["database", "files"])
def test_a_run_is_found_in_its_own_suite_first_and_then_in_others(documents, tmp_path, turn):
    other, third = (RUN.replace("suit_default", name) for name in ("suit_a", "suit_z"))
    for path in (third, other, RUN, ASIDE):
        documents.put(path, path.encode())
    elsewhere = (RUN.replace("/gpt/", "/claude/"), RUN.replace("12345678", "87654321"), RUN.replace("/sum/", "/sums/"))
    for path in (*elsewhere, f"{FOLDER}/run_2.json", RUN.replace("runs/", "evaluations/")):
        documents.put(path, b"other")
    turn(tmp_path)
    assert [*documents.find(FOLDER, NAMES)] == [(path, path.encode()) for path in (RUN, ASIDE, other, third)]
    assert documents.folders("runs") == ["suit_a", "suit_default", "suit_z"]
    assert documents.folders(FOLDER.rpartition("/")[0]) == ["sum", "sums"]
    assert [*documents.find(FOLDER.replace("sum", "none"), NAMES)] == []


def test_runs_that_are_found_one_after_another_are_those_that_are_stored(documents, asked):
    folders = [f"{FOLDER}{number}" for number in range(9)]
    for folder in folders:
        documents.put(f"{folder}/run_1.json", b"first")
        documents.put(f"{folder}/run_1.fingerprint_input.json", b"{}")
    for folder in folders[:3]:
        assert next(documents.find(folder, NAMES)) == (f"{folder}/run_1.json", b"first")
    documents.put(f"{folders[3]}/run_1.json", b"second")
    documents.remove(f"{folders[4]}/run_1.json")
    documents.move(f"{folders[5]}/run_1.json", f"{folders[5]}/{NAMES[1]}")
    asked("UPDATE documents SET content = 'theirs' WHERE name = 'run_1.json'")
    found = [[content for _, content in documents.find(folder, NAMES)] for folder in folders[3:7]]
    # What was read before another program changed it is given once, then what is there
    assert found == [[b"theirs"], [], [b"first"], [b"first", b"theirs"]]
    assert [*documents.find(folders[6], NAMES)] == [(f"{folders[6]}/run_1.json", b"theirs")]


@pytest.mark.parametrize("what", ["removed", "moved", "replaced"])
def test_a_database_that_is_gone_from_its_place_is_left_and_that_is_said(tmp_path, what):
    output, said = tmp_path / "outputs", []
    documents = open_documents(output)
    documents.warn = said.append
    documents.put(RUN, b"first")
    if what == "removed":
        shutil.rmtree(output)
    else:
        output.rename(tmp_path / "moved")
    if what == "replaced":
        run_child(f"documents.put({ASIDE!r}, b'theirs')", output)
    for number in (2, 3):
        documents.put(f"{FOLDER}/run_{number}.json", b"second")
    documents.close()
    assert ["was removed or moved while it was in use" in line for line in said] == [True]
    names = ["run_2.json", "run_3.json"]
    code = f"print(documents.names({FOLDER!r}))"
    assert run_child(code, output).strip() == str(sorted([*names, *[NAMES[1]] * (what == "replaced")]))
    if what != "removed":
        assert run_child(code, tmp_path / "moved").strip() == str([NAMES[0]])


def test_the_database_takes_precedence_over_laid_out_files(documents, tmp_path):
    """The files of the layout are a view: who changes one changes nothing."""
    documents.put(RUN, b"stored")
    assert lay_out(documents) == 1
    assert (tmp_path / RUN).read_bytes() == b"stored"
    (tmp_path / RUN).write_bytes(b"edited")
    assert (documents.read(RUN), [*documents.find(FOLDER, NAMES)]) == (b"stored", [(RUN, b"stored")])
    (tmp_path / RUN).unlink()
    assert documents.read(RUN) == b"stored"
    lay_out(documents)
    assert (tmp_path / RUN).read_bytes() == b"stored"
    assert os.stat(tmp_path / RUN).st_mtime_ns == documents.modified(RUN)


def test_an_edited_view_is_mended_when_it_is_made_again(documents, tmp_path):
    documents.put(RUN, b"stored")
    lay_out(documents)
    (tmp_path / RUN).write_bytes(b"edited")
    lay_out(documents)
    assert (tmp_path / RUN).read_bytes() == b"stored"


def test_the_view_waits_for_a_session_that_displaces_what_it_shows(documents, tmp_path):
    documents.put(RUN, b"first")
    code = f"""
with documents.writing():
    documents.move({RUN!r}, {ASIDE!r})
    documents.put({RUN!r}, b"second")
    print("displaced", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(in_child(code, tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "displaced\n"
        thread = threading.Thread(target=lay_out, args=(documents,))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        other.communicate("\n", timeout=60)
        thread.join(60)
    assert ((tmp_path / RUN).read_bytes(), (tmp_path / ASIDE).read_bytes()) == (b"second", b"first")


def test_a_step_that_fails_has_not_happened(documents, tmp_path):
    documents.put(RUN, b"first")
    with pytest.raises(RuntimeError), documents.writing():  # noqa: PT012
        documents.put(RUN, b"second")
        documents.put(RUN.replace("suit_default", "suit_new"), b"in a folder that is new")
        raise RuntimeError
    assert [*documents.find(FOLDER, NAMES)] == [(RUN, b"first")]
    documents.put(RUN.replace("suit_default", "suit_new"), b"again")
    assert documents.read(RUN.replace("suit_default", "suit_new")) == b"again"


def test_a_large_document_stays_until_what_takes_its_place_is_stored(documents):
    documents.put(RUN, LARGE)
    with pytest.raises(RuntimeError), documents.writing():  # noqa: PT012
        documents.put(RUN, b"small")
        raise RuntimeError
    assert documents.read(RUN) == LARGE


def test_a_large_document_that_is_removed_stays_until_that_is_stored(documents, tmp_path):
    documents.put(RUN, LARGE)
    with pytest.raises(RuntimeError), documents.writing():  # noqa: PT012
        documents.remove(RUN)
        assert documents.read(RUN) is None
        raise RuntimeError
    assert documents.read(RUN) == LARGE
    with documents.writing():
        documents.remove(RUN)
        documents.put(RUN, LARGE + b"again")
    assert documents.read(RUN) == LARGE + b"again"
    with documents.writing():
        documents.remove(RUN)
        documents.put(RUN, b"small")
    assert (documents.read(RUN), (tmp_path / RUN).exists()) == (b"small", False)


def test_nothing_is_made_before_something_is_written(tmp_path):
    documents = open_documents(tmp_path / "outputs")
    assert (documents.read(RUN), [*documents.find(FOLDER, NAMES)], documents.names(FOLDER)) == (None, [], [])
    documents.remove(RUN)
    assert lay_out(documents) == lay_out_used(documents) == 0
    assert not (tmp_path / "outputs/store.sqlite").exists()


def test_a_folder_is_itself_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = open_documents("outputs")
    documents.put(RUN, b"{}")
    documents.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert documents.read(RUN) == b"{}"
    assert open_documents(tmp_path / "outputs") is documents


# -- the views


def test_views_answer_questions(documents, asked):
    documents.put(
        RUN,
        b'{"case_id":"sum","model":{"model_id":"gpt"},"repetition":1,"status":"success","run_id":"r1",'
        b'"fingerprint":"f1","usage":{"total_tokens":7,"cost_usd":0.5},"started_at":"2026","duration_seconds":1.5}',
    )
    documents.put(f"{FOLDER}/run_1.fingerprint_input.json", b"{}")
    verdicts = FOLDER.replace("runs/", "evaluations/")
    documents.put(
        f"{verdicts}/final_result_1.json", b'{"case_id":"sum","run_id":"r1","outcome":"passed","final_score":9}'
    )
    documents.put(f"{verdicts}/summary_1.md", b"# sum")
    assert asked("SELECT * FROM runs") == [
        (RUN, "sum", "gpt", 1, "success", "r1", "f1", "2026", 1.5, 7, 0.5),
    ]
    assert asked("SELECT path, outcome, final_score FROM evaluations") == [
        (f"{verdicts}/final_result_1.json", "passed", 9)
    ]
    assert asked("SELECT content FROM files WHERE name = 'summary_1.md'") == [("# sum",)]
    joined = "SELECT outcome, cost_usd FROM runs JOIN evaluations USING (run_id)"
    assert asked(joined) == [("passed", 0.5)]


# -- several processes


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


# -- what is no store


def test_another_programs_database_is_left_alone(documents, tmp_path, asked):
    asked("CREATE TABLE mine (a)")
    before = (tmp_path / DATABASE).read_bytes()
    for attempt in (lambda: documents.read(RUN), lambda: documents.put(RUN, b"{}")):
        with pytest.raises(ConfigError, match=r"store\.sqlite: found 'documents' other than expected"):
            attempt()
    assert (tmp_path / DATABASE).read_bytes() == before
    assert os.listdir(tmp_path) == [DATABASE]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER spy AFTER INSERT ON documents BEGIN DELETE FROM documents; END", "spy"),
        ("CREATE TABLE other (a)", "other"),
        ("CREATE INDEX slow ON documents (content)", "slow"),
        ("DROP VIEW runs", "runs"),
        ("ALTER TABLE documents ADD COLUMN more", "documents"),
        ("PRAGMA application_id = 7", "application_id"),
    ],
)
def test_a_database_with_anything_else_in_it_is_refused(documents, tmp_path, asked, statement, named):
    documents.put(RUN, b"{}")
    documents.close()
    asked(statement)
    with pytest.raises(ConfigError, match=f"found '{named}' other than expected.*--agentbench-output"):
        documents.read(RUN)


def test_a_newer_versions_database_is_left_alone(documents, tmp_path, asked):
    documents.put(RUN, b"{}")
    documents.close()
    asked(f"PRAGMA user_version = {VERSION + 1}")
    asked("CREATE TABLE newer (a)")
    with pytest.raises(ConfigError, match=f"found user_version {VERSION + 1}, expected at most {VERSION}"):
        documents.put(RUN, b"mine")


@pytest.mark.parametrize("content", [b"no database" * 1_000, b"SQLite format 3\x00" + b"\xff" * 5_000])
def test_a_file_that_is_not_a_database_is_an_error(documents, tmp_path, content):
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(ConfigError, match=r"store\.sqlite: .*--agentbench-output"):
        documents.put(RUN, b"{}")
    assert (tmp_path / DATABASE).read_bytes() == content


def test_an_empty_file_becomes_a_database(documents, tmp_path):
    (tmp_path / DATABASE).touch()
    assert documents.read(RUN) is None
    documents.put(RUN, b"{}")
    assert documents.read(RUN) == b"{}"


@pytest.mark.skipif(os.name != "posix", reason="needs links and FIFOs")
@pytest.mark.parametrize("name", [DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"])
def test_no_link_is_followed(tmp_path, name):
    (tmp_path / "mine").write_bytes(b"")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="is no plain file"):
        open_documents(tmp_path / "outputs").put(RUN, b"{}")
    assert (tmp_path / "mine").read_bytes() == b""


@pytest.mark.skipif(os.name != "posix", reason="needs FIFOs")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_database_path_that_is_not_a_file_fails_without_waiting(tmp_path, make):
    make(tmp_path / DATABASE)
    with pytest.raises((OSError, ConfigError)):
        open_documents(tmp_path).put(RUN, b"{}")


PLANTED = {
    "folder": ("../../elsewhere", "sum", "run_1.json"),
    "absolute folder": ("/tmp/elsewhere", "sum", "run_1.json"),
    "leaf": ("runs/suit_default/run_profile_12345678/gpt", "../../../../../elsewhere", "run_1.json"),
    "name": ("runs/suit_default/run_profile_12345678/gpt", "sum", "../../../../../../elsewhere"),
    "root": ("elsewhere/suit_default", "sum", "run_1.json"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_links_do_not_lead_out_of_the_folder(tmp_path, kind):
    output = tmp_path / "a/b/outputs"
    documents = open_documents(output)
    documents.put(RUN, b"{}")
    documents.put(f"{FOLDER}/run_9.json", b"{}")
    documents.close()
    folder, leaf, name = PLANTED[kind]
    place = f"runs/{FOLDER.split('/', 2)[2].rpartition('/')[0]}"
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database, database:
        database.execute("DELETE FROM documents WHERE name = 'run_1.json'")
        database.execute("INSERT OR IGNORE INTO folders (path, place) VALUES (?, ?)", (folder, place))
        [(known,)] = database.execute("SELECT id FROM folders WHERE path = ?", (folder,)).fetchall()
        database.execute("INSERT INTO documents VALUES (?, ?, ?, 1, x'7B7D')", (known, leaf, name))
    before = sorted(path for path in tmp_path.rglob("*") if output not in path.parents)
    for path, content in documents.find(FOLDER, NAMES):
        assert content == b"{}", path
    lay_out_used(documents)
    lay_out(documents)
    lay_out(documents, str(tmp_path / "a/b/laid"))
    for below in documents.folders(FOLDER.rpartition("/")[0]):
        assert "/" not in below
    assert all("/" not in each for each in documents.names(FOLDER))
    after = sorted(path for path in tmp_path.rglob("*") if output not in path.parents)
    assert [path for path in after if path not in before and "laid" not in path.parts] == []
    assert not os.path.exists("/tmp/elsewhere/sum")


@pytest.mark.parametrize("value", ["text", 7, 0.5], ids=repr)
def test_a_document_of_another_type_breaks_nothing(documents, asked, value):
    documents.put(RUN, b"{}")
    asked("UPDATE documents SET content = ?, modified = 'never'", value)
    found = documents.read(RUN)
    assert found is None or isinstance(found, bytes)
    assert all(isinstance(content, bytes) for _, content in documents.find(FOLDER, NAMES))
    assert isinstance(documents.modified(RUN), int | None)
    lay_out(documents)


@pytest.mark.slow
def test_a_document_larger_than_any_record_is_refused(documents, asked):
    documents.put(RUN, b"{}")
    asked("UPDATE documents SET content = zeroblob(?)", MAX_RECORD + 1)
    with pytest.raises(OSError, match="too big"):
        documents.read(RUN)


# -- disks


def test_a_full_disk_keeps_stored_documents(tmp_path):
    with small_disk(tmp_path / "disk"):
        documents = open_documents(tmp_path / "disk/outputs")
        documents.put(RUN, b"paid")
        stored = 0
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
            for number in range(2, 200):
                documents.put(f"{FOLDER}/run_{number}.json", b"x" * 30_000)
                stored = number
        assert stored > 2
        assert documents.read(RUN) == b"paid"
        assert all(documents.size(f"{FOLDER}/run_{number}.json") == 30_000 for number in range(2, stored + 1))
        assert documents.read(f"{FOLDER}/run_{stored + 1}.json") is None
        documents.close()


def test_a_disk_that_has_room_again_is_written_to(tmp_path):
    with small_disk(tmp_path / "disk") as remount:
        documents = open_documents(tmp_path / "disk/outputs")
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
            for number in range(2, 200):
                documents.put(f"{FOLDER}/run_{number}.json", b"x" * 30_000)
        remount("size=20m")
        documents.put(RUN, b"paid")
        assert documents.read(RUN) == b"paid"
        documents.close()


def test_a_disk_that_is_only_read_is_read(tmp_path):
    with small_disk(tmp_path / "disk") as remount:
        documents = open_documents(tmp_path / "disk/outputs")
        documents.put(RUN, b"paid")
        documents.close()
        remount("ro")
        assert documents.read(RUN) == b"paid"
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            documents.put(RUN, b"new")
        documents.touch(RUN)
        documents.close()


REFUSE_LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

static int call(const char *name, int descriptor, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
        errno = ENOLCK;
        return -1;
    }
    int (*next)(int, int, ...) = dlsym(RTLD_NEXT, name);
    return next(descriptor, command, argument);
}

#define FORWARD(name)                             \
    int name(int descriptor, int command, ...) {  \
        va_list rest;                             \
        va_start(rest, command);                  \
        void *argument = va_arg(rest, void *);    \
        va_end(rest);                             \
        return call(#name, descriptor, command, argument); \
    }

FORWARD(fcntl)
FORWARD(fcntl64)
int flock(int descriptor, int operation) { errno = ENOLCK; return -1; }
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
def test_without_locks_results_are_files_and_that_is_said_once(tmp_path):
    shim = build_shim(tmp_path, REFUSE_LOCKS)
    code = f"""
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
documents.put({RUN!r}, b"first")
documents.put({RUN!r}, b"second")
documents.move({RUN!r}, {ASIDE!r})
documents.touch({ASIDE!r})
print(documents.read({ASIDE!r}), documents.names({FOLDER!r}), dict(documents.find({FOLDER!r}, {NAMES!r})))
"""
    output = tmp_path / "outputs"
    *warnings, said = run_child(code, output, env=os.environ | {"LD_PRELOAD": str(shim)}).splitlines()
    assert said == f"b'second' ['{NAMES[1]}'] {{'{ASIDE}': b'second'}}"
    assert [("results are kept as files" in line) for line in warnings if "kept as files" in line] == [True]
    assert list_stored(output) == [ASIDE]
    assert not (output / DATABASE).exists()
    assert open_documents(output).read(ASIDE) == b"second"


OTHER_MOUNTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FORWARD(name)                                                                  \
    int name(const char *path, int flags, ...) {                                       \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        int mode = va_arg(rest, int);                                                  \
        va_end(rest);                                                                  \
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                 \
        return next(strcmp(path, "/proc/self/mountinfo") ? path : getenv("MOUNTS"), flags, mode); \
    }

FORWARD(open)
FORWARD(open64)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
@pytest.mark.parametrize("copied", [True, False], ids=["a database that was copied there", "a new folder"])
def test_on_a_network_file_system_results_are_files_or_one_warning_says_what_to_do(documents, tmp_path, copied):
    shim = build_shim(tmp_path, OTHER_MOUNTS)
    (tmp_path / "mounts").write_text(f"30 22 0:40 / {os.path.realpath(tmp_path)} rw - nfs4 server:/home rw\n")
    if copied:
        documents.put(RUN, b"first")
        documents.close()
    code = f"""
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
documents.put({ASIDE!r}, b"second")
documents.close()
print(documents.read({ASIDE!r}), documents.names({FOLDER!r}))
"""
    environ = os.environ | {"LD_PRELOAD": str(shim), "MOUNTS": str(tmp_path / "mounts")}
    *warnings, said = run_child(code, tmp_path, env=environ).splitlines()
    names = [*NAMES] if copied else [NAMES[1]]
    assert said == f"b'second' {sorted(names)}"
    expected = "agentbench store export --files DIR" if copied else "results are kept as files"
    assert [expected in line for line in warnings] == [True]
    assert (tmp_path / ASIDE).exists() == (not copied)


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / /home rw,relatime shared:5 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /data rw master:1 propagate_from:2 - ext4 /dev/sdc rw
33 32 0:43 / /data rw - lustre mgs@tcp:/fs rw
34 22 0:44 / /mnt/逆 rw - fuse.sshfs me@there: rw
broken
""".strip().splitlines()


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/outputs", "nfs4"),
        ("/homes/me", "ext4"),
        ("/home/me/local disk/outputs", "xfs"),
        ("/data/outputs", "lustre"),
        ("/mnt/逆/outputs", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_mount_and_the_last(place, kind):
    assert find_file_system(place, MOUNTS) == kind


def test_no_mounts_no_file_system():
    assert find_file_system("/home", []) == ""


# -- taking in and giving back


def test_compacting_frees_the_space_of_removed_documents(documents, tmp_path):
    for number in range(100):
        documents.put(f"{FOLDER}/run_{number}.json", b"x" * 10_000)
    documents.close()
    before = (tmp_path / DATABASE).stat().st_size
    for number in range(1, 100):
        documents.remove(f"{FOLDER}/run_{number}.json")
    documents.compact()
    documents.close()
    assert (tmp_path / DATABASE).stat().st_size < before / 10
    assert documents.read(f"{FOLDER}/run_0.json") == b"x" * 10_000


def test_every_document_is_laid_out_in_another_folder(documents, tmp_path):
    contents = {RUN: b"{}", ASIDE: LARGE, "judgements/ab/abc.json": b"vote"}
    for path, content in contents.items():
        documents.put(path, content)
    assert lay_out(documents, str(tmp_path / "there")) == 3
    assert {path: (tmp_path / "there" / path).read_bytes() for path in contents} == contents


def test_only_what_was_used_is_laid_out_at_a_sessions_end(tmp_path):
    run_child(f"documents.put({RUN.replace('sum', 'earlier')!r}, b'')", tmp_path)
    code = (
        "from pytest_agentbench.store.layout import lay_out_used\n"
        f"documents.note_use()\ndocuments.put({RUN!r}, b'')\nprint(lay_out_used(documents))"
    )
    assert run_child(code, tmp_path) == "1\n"
    assert (tmp_path / RUN).exists()
    assert not (tmp_path / RUN.replace("sum", "earlier")).exists()


def test_nothing_is_laid_out_of_what_nobody_noted(tmp_path):
    documents = open_documents(tmp_path)
    documents.put(RUN, b"{}")
    assert lay_out_used(documents) == 0
    assert not (tmp_path / "runs").exists()


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


def test_a_failed_transaction_raises_for_every_concurrent_store(documents, monkeypatch):
    """A disk is full at the end of a step, as a rule: none of its writes is taken for stored."""

    def execute(database, statement, *given):
        if statement == "COMMIT":
            raise OSError(errno.ENOSPC, "No space left on device")
        return database.execute(statement, *given)

    def put(name):
        path = f"{FOLDER}/{name}"
        documents.put(path, b"{}")
        return path

    async def store():
        writes = Writes(documents)
        return await asyncio.gather(*(writes.make(partial(put, name)) for name in NAMES), return_exceptions=True)

    assert asyncio.run(store()) == [f"{FOLDER}/{name}" for name in NAMES]
    for name in NAMES:
        documents.remove(f"{FOLDER}/{name}")
    monkeypatch.setattr("pytest_agentbench.store.database.execute", execute)
    assert [type(each) for each in asyncio.run(store())] == [OSError, OSError]
    assert list_stored(documents.output, "run_1*") == []
