"""Databases that another program, another version or an attacker has written."""

from __future__ import annotations

import contextlib
import os
import sqlite3

import pytest
from store_samples import FOLDER, NAMES, RUN

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.store.connection import VERSION
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.layout import lay_out, lay_out_used
from pytest_agentbench.store.output_folder import DATABASE


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
    with pytest.raises(ConfigError, match="is not a regular file"):
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
