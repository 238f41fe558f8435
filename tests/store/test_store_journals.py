"""Output folders of others whose database has journals next to it, or acts when it is opened."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.c_shim import build_shim
from support.special_files import make
from support.stored import list_stored
from support.stored_runs import StoredRuns

from pytest_agentbench.cli import main
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.connection import allow_writes, connect, execute
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.output_folder import DATABASE

FOLDER = "runs/suit_default/run_profile_12345678/gpt/sum"
RUN = f"{FOLDER}/run_1.json"
MAGIC = bytes.fromhex("d9d505f920a163d7")

LOOKS = {
    "report": ["report", "outputs/report.json", "--html", "page.html"],
    "show": ["store", "show", "--output", "outputs"],
    "verify": ["store", "verify", "--output", "outputs"],
    "export": ["store", "export", "--output", "outputs"],
    "prune": ["store", "prune", "--output", "outputs"],
    "repair": ["store", "repair", "--output", "outputs"],
}


@pytest.fixture
def output(tmp_path, monkeypatch) -> Path:
    """The output folder of another person: a run, its verdict and report.json."""
    monkeypatch.chdir(tmp_path)
    stored = StoredRuns(tmp_path / "outputs")
    stored.add("sum")
    documents = open_documents(tmp_path / "outputs")
    for path in list_stored(tmp_path / "outputs", "*.json"):
        documents.put(path, (tmp_path / "outputs" / path).read_bytes())
        (tmp_path / "outputs" / path).unlink()
    documents.close()
    stored.write("report.json", json.dumps(stored.report))
    assert sorted(path.name for path in (tmp_path / "outputs").glob("store*")) == [DATABASE]
    return tmp_path / "outputs"


def write_journal(database: Path, victim: Path) -> None:
    """Write a hot journal that names a file as its super-journal, which SQLite deletes after rolling back."""
    name = os.fsencode(victim)
    pages = (database.stat().st_size // 8192).to_bytes(4)
    header = MAGIC + bytes(8) + pages + (512).to_bytes(4) + (8192).to_bytes(4)
    checksum = sum(name).to_bytes(4)
    end = bytes(4) + name + len(name).to_bytes(4) + checksum + MAGIC
    Path(f"{database}-journal").write_bytes(header.ljust(512, b"\0") + end)


def test_sqlite_deletes_the_file_that_a_journal_names(output, tmp_path):
    """Without this the tests below prove nothing."""
    (victim := tmp_path / "precious").write_text("mine")
    write_journal(output / DATABASE, victim)
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database:
        database.execute("SELECT * FROM folders").fetchall()
    assert not victim.exists()


@pytest.mark.parametrize("look", [pytest.param("report", marks=pytest.mark.slow), *[*LOOKS][1:]])
@pytest.mark.parametrize("kind", ["names a file", "empty"])
def test_a_database_with_a_rollback_journal_is_not_opened(output, tmp_path, capsys, look, kind):
    (victim := tmp_path / "precious").write_text("mine")
    write_journal(output / DATABASE, victim)
    if kind == "empty":
        Path(f"{output / DATABASE}-journal").write_bytes(b"")
    before = (output / DATABASE).read_bytes()
    assert main(LOOKS[look]) == 1
    assert "store.sqlite-journal: found a rollback journal" in capsys.readouterr().err
    assert victim.read_text() == "mine"
    assert (output / DATABASE).read_bytes() == before


def test_no_write_opens_a_database_with_a_rollback_journal(output, tmp_path):
    (victim := tmp_path / "precious").write_text("mine")
    write_journal(output / DATABASE, victim)
    for act in (lambda d: d.put(RUN, b"{}"), lambda d: d.remove(RUN), lambda d: d.touch(RUN), lambda d: d.compact()):
        with pytest.raises(ConfigError, match="rollback journal"):
            act(open_documents(output))
    assert victim.read_text() == "mine"


@pytest.mark.skipif(os.name != "posix", reason="needs links and FIFOs")
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm", ""])
@pytest.mark.parametrize("kind", ["pipe", "folder", "zero", "socket"])
def test_journal_paths_that_are_not_plain_files_are_refused_at_once(output, capsys, suffix, kind):
    place = Path(f"{output / DATABASE}{suffix}")
    place.unlink(missing_ok=True)
    make(kind, place)
    assert main(LOOKS["verify"]) == 1
    assert f"store.sqlite{suffix}: is not a regular file" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="needs files of two users")
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_of_another_user_or_with_two_names_is_refused(output, tmp_path, suffix):
    place = Path(f"{output / DATABASE}{suffix}")
    (tmp_path / "mine").write_bytes(b"")
    os.link(tmp_path / "mine", place)
    with pytest.raises(ConfigError, match="has 2 hard links"):
        open_documents(output).read(RUN)
    (tmp_path / "mine").unlink()
    os.chown(place, 12345, -1)
    with pytest.raises(ConfigError, match="is of user 12345"):
        open_documents(output).read(RUN)
    os.chown(output / DATABASE, 12345, -1)
    open_documents(output).read(RUN)


@pytest.mark.slow
def test_a_look_changes_no_file(output, tmp_path):
    """Not even a database in another journal mode, as VACUUM INTO and other programs leave it."""
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.glob("store*")}
    for look in ("report", "show", "verify", "export"):
        assert main(LOOKS[look]) in (0, 1)
    open_documents(output).close()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in output.glob("store*")} == before


NO_JOURNAL = """
import sys
from pytest_agentbench.store.database import open_documents

documents = open_documents(sys.argv[1])
documents.put("runs/s/p/m/c/run_1.json", b"{}")
documents.compact()
documents.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
@pytest.mark.parametrize("mode", ["none", "empty", "delete", "wal"])
def test_no_write_of_this_package_makes_a_rollback_journal(tmp_path, mode):
    """Else a killed session could leave one, which the next session would refuse."""
    shim = build_shim(tmp_path, NOTE_OPENED)
    output = tmp_path / "outputs"
    output.mkdir()
    if mode == "empty":
        (output / DATABASE).touch()
    if mode in ("delete", "wal"):
        documents = open_documents(output)
        documents.put(RUN, b"{}")
        documents.close()
    if mode == "delete":
        with contextlib.closing(sqlite3.connect(output / DATABASE)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
    environ = os.environ | {"LD_PRELOAD": str(shim), "OPENED": str(tmp_path / "opened")}
    subprocess.run([sys.executable, "-c", NO_JOURNAL, str(output)], env=environ, check=True, timeout=60)
    opened = (tmp_path / "opened").read_text().splitlines()
    assert f"{output / DATABASE}-wal" in opened
    assert f"{output / DATABASE}-journal" not in opened


NOTE_OPENED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORWARD(name)                                                                  \
    int name(const char *path, int flags, ...) {                                       \
        va_list rest;                                                                  \
        va_start(rest, flags);                                                         \
        int mode = va_arg(rest, int);                                                  \
        va_end(rest);                                                                  \
        if (strstr(path, "store.sqlite")) {                                            \
            FILE *file = fopen(getenv("OPENED"), "a");                                 \
            fprintf(file, "%s\n", path);                                               \
            fclose(file);                                                              \
        }                                                                              \
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                 \
        return next(path, flags, mode);                                                \
    }

FORWARD(open)
FORWARD(open64)
"""


SPY = "CREATE TRIGGER {} AFTER INSERT ON documents BEGIN DELETE FROM folders; END"


@pytest.mark.parametrize("name", ["runs", "documents", "spy"])
def test_a_trigger_of_any_name_is_found(output, name):
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database, database:
        database.execute(SPY.format(name))
        # As the row before the one of the view or table of that name
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET rowid = -1 WHERE type = 'trigger' AND name = 'runs'")
    with pytest.raises(ConfigError, match=r"other than expected|malformed"):
        open_documents(output).put(RUN, b"{}")


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH 'elsewhere.sqlite' AS elsewhere",
        "VACUUM INTO 'elsewhere.sqlite'",
        "SELECT * FROM runs",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "CREATE TEMP TABLE t (a)",
        SPY.format("spy"),
        "ALTER TABLE documents RENAME TO d",
        "DROP TABLE documents",
    ],
)
def test_a_statement_that_the_store_never_uses_is_denied(output, tmp_path, statement):
    with contextlib.closing(connect(str(output / DATABASE))) as database:
        allow_writes(database, str(output / DATABASE))
        with pytest.raises(OSError, match=r"not authorized|denied|prohibited|unsafe use"):
            execute(database, statement)
    assert not (tmp_path / "elsewhere.sqlite").exists()


def test_a_trigger_that_is_planted_later_does_not_run(output):
    documents = open_documents(output)
    documents.put(RUN, b"{}")
    with contextlib.closing(sqlite3.connect(output / DATABASE)) as database, database:
        database.execute(SPY.format("spy"))
    with pytest.raises(OSError, match=r"not authorized|denied|prohibited|unsafe use"):
        documents.put(f"{FOLDER}/run_2.json", b"{}")
    assert documents.read(RUN) == b"{}"


def test_every_database_of_the_package_is_opened_by_one_function():
    package = Path(sys.modules["pytest_agentbench"].__file__).parent
    found = [path.name for path in package.rglob("*.py") if "sqlite3.connect(" in path.read_text(encoding="utf-8")]
    assert found == ["connection.py"]
