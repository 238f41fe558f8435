"""Documents of the database written as files in the documented layout."""

from __future__ import annotations

import os
import subprocess
import threading

from store_samples import ASIDE, FOLDER, LARGE, NAMES, RUN, in_child, run_child

from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.layout import lay_out, lay_out_used


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
