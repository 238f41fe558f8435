"""The documents of an output folder: stored, replaced, moved, removed and found; steps are atomic."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from functools import partial

import pytest
from store_samples import ASIDE, FOLDER, LARGE, NAMES, RUN, run_child
from support.stored import as_files, list_stored

from pytest_agentbench.store.artifacts import Writes
from pytest_agentbench.store.database import LARGEST, open_documents
from pytest_agentbench.store.layout import lay_out, lay_out_used
from pytest_agentbench.store.output_folder import DATABASE


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
