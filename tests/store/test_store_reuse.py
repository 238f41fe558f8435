"""What lies in the store is found again, and what is in the way of a write is kept."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from support.stored import Stored, as_files, list_stored
from test_store_artifacts import RUN_INPUT, artifact, evaluation, in_child, make_model_store

from pytest_agentbench.bounded.files import MAX_RECORD
from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import find_whole_archive, find_whole_file

A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def model_store(tmp_path, said):
    made = make_model_store(tmp_path)
    object.__setattr__(made, "warn", said.append)
    return made


def test_a_run_and_its_verdict_are_found(model_store):
    path = model_store.write_run(artifact(), RUN_INPUT)
    done = evaluation(fingerprint=B, run_id="r1")
    verdict = model_store.write_evaluation(1, done)
    assert model_store.find_run("sum", 1, A) == (artifact(), path)
    assert model_store.find_evaluation(artifact(), B) == (done, verdict)


@pytest.mark.parametrize(("case_id", "repetition", "key"), [("sum", 1, B), ("sum", 2, A), ("sums", 1, A)])
def test_no_other_run_is_found(model_store, case_id, repetition, key):
    model_store.write_run(artifact(), RUN_INPUT)
    assert model_store.find_run(case_id, repetition, key) is None


def test_a_verdict_counts_for_its_own_draw_only(model_store):
    model_store.write_evaluation(1, evaluation(fingerprint=B, run_id="r1"))
    assert model_store.find_evaluation(artifact(run_id="r2"), B) is None
    assert model_store.find_evaluation(artifact(), C) is None


def test_a_verdict_that_errors_prevented_is_none(model_store):
    model_store.write_evaluation(1, evaluation(fingerprint=B, run_id="r1", outcome="error"))
    assert model_store.find_evaluation(artifact(), B) is None


def test_a_fingerprint_inside_an_agents_words_is_not_the_runs(model_store):
    model_store.write_run(artifact(key=B, metadata={"fingerprint": A}), RUN_INPUT)
    assert model_store.find_run("sum", 1, A) is None


def test_a_superseded_run_and_verdict_are_found(model_store):
    for key, run_id in ((A, "r1"), (B, "r2"), (C, "r3")):
        model_store.write_run(artifact(key=key, run_id=run_id), {"of": key})
        model_store.write_evaluation(1, evaluation(judged=True, fingerprint=key, run_id=run_id), [{"content": key}])
    for key, run_id, name in ((A, "r1", "run_1.aaaaaaaa"), (B, "r2", "run_1.bbbbbbbb"), (C, "r3", "run_1")):
        found, path = model_store.find_run("sum", 1, key)
        assert (found.run_id, path.rpartition("/")[2]) == (run_id, f"{name}.json")
        verdict, path = model_store.find_evaluation(found, key)
        assert (verdict.run_id, path.rpartition("/")[2]) == (run_id, f"{name.replace('run', 'final_result')}.json")


def test_files_of_judges_move_with_the_verdict(model_store, tmp_path):
    path = Stored(
        tmp_path, model_store.write_evaluation(1, evaluation(judged=True, fingerprint=A), [{"content": "Judge."}])
    )
    model_store.write_evaluation(1, evaluation(fingerprint=B))
    assert path.beside() == [
        "final_result_1.aaaaaaaa.json",
        "final_result_1.json",
        "judge_1.aaaaaaaa.json",
        "judge_1.aaaaaaaa.prompt.user.json",
        "summary_1.aaaaaaaa.md",
    ]


def test_no_error_takes_a_verdict_away(model_store):
    done = evaluation(fingerprint=B, run_id="r1")
    model_store.write_evaluation(1, done)
    for fingerprint in (None, B, B):
        model_store.write_evaluation(1, evaluation(outcome="error", fingerprint=fingerprint, run_id="r1"))
        assert model_store.find_evaluation(artifact(), B)[0] == done


@pytest.mark.parametrize("status", ["failed", "timed_out", "invalid", "provider_error"])
def test_only_a_providers_failure_takes_no_success_away(model_store, status):
    failed = {"status": status, "error": {"code": "x", "message": "x"}, "run_id": "r2"}
    model_store.write_run(artifact(), RUN_INPUT)
    model_store.write_run(artifact(**failed), RUN_INPUT)
    model_store.write_run(artifact(**failed | {"run_id": "r3"}), RUN_INPUT)
    found = model_store.find_run("sum", 1, A, lambda run: run.status == "success")
    assert (found is not None) == (status == "provider_error")
    assert model_store.find_run("sum", 1, A)[0].run_id == "r3"
    model_store.write_run(artifact(run_id="r4"), RUN_INPUT)
    assert model_store.find_run("sum", 1, A, lambda run: run.status == "success")[0].run_id == "r4"


def test_a_providers_failure_takes_no_success_away_when_it_moves_aside_itself(model_store):
    good, failed = artifact("good"), {"status": "provider_error", "error": {"code": "x", "message": "x"}}
    model_store.write_run(good, RUN_INPUT)
    model_store.write_run(artifact(**failed, run_id="r2"), RUN_INPUT)
    model_store.write_run(artifact(key=B, run_id="r3"), {"of": B})
    assert model_store.find_run("sum", 1, A)[0] == good
    assert model_store.find_run("sum", 1, B)[0].run_id == "r3"


WRITER = """
import sys
model_store, key = make_model_store(output), sys.argv[1] * 64
for number in range(150):
    case = f"case{number}"
    model_store.write_run(artifact(key=key, case_id=case, run_id=key[:8]), RUN_INPUT)
    done = evaluation(judged=True, fingerprint=key, run_id=key[:8]).model_copy(update={"case_id": case})
    model_store.write_evaluation(1, done)
"""


@pytest.mark.slow
def test_sessions_of_other_settings_write_side_by_side_and_lose_nothing(model_store, tmp_path):
    writers = [subprocess.Popen([*in_child(WRITER, tmp_path), letter]) for letter in "abcd"]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    for key in (letter * 64 for letter in "abcd"):
        runs = [model_store.find_run(f"case{number}", 1, key) for number in range(150)]
        assert all(run is not None and run[0].run_id == key[:8] for run in runs)
        assert all(model_store.find_evaluation(run[0], key) is not None for run in runs)


def test_a_run_that_names_the_archive_of_another_takes_it_from_nobody(model_store, tmp_path):
    mine = model_store.write_workspace("mine", 1, "r1", lambda file: file.write(b"packed") and None)
    model_store.write_run(artifact(case_id="mine", workspace=mine), RUN_INPUT)
    model_store.write_run(artifact(workspace=mine), RUN_INPUT)
    model_store.write_run(artifact(run_id="r2"), RUN_INPUT)
    assert find_whole_archive(tmp_path, mine) is not None
    model_store.write_run(artifact(case_id="mine", run_id="r2"), RUN_INPUT)
    assert find_whole_archive(tmp_path, mine) is None


def test_other_suites_are_looked_at_last(tmp_path):
    whole, smoke, nightly = (make_model_store(tmp_path, suite=name) for name in (None, "smoke", "nightly"))
    path = whole.write_run(artifact(), RUN_INPUT)
    whole.write_evaluation(1, evaluation(fingerprint=B, run_id="r1"))
    assert smoke.find_run("sum", 1, A) == (artifact(), path)
    assert smoke.find_evaluation(artifact(), B) is not None
    own = smoke.write_run(artifact(run_id="r2"), RUN_INPUT)
    assert smoke.find_run("sum", 1, A)[1] == own
    whole.write_run(artifact(key=B), RUN_INPUT)
    assert nightly.find_run("sum", 1, B)[1] == path
    assert nightly.find_run("sum", 1, A)[0].run_id == "r1"  # aside in the whole session's
    assert make_model_store(tmp_path, suite="x", model="other").find_run("sum", 1, A) is None
    assert make_model_store(tmp_path, suite="x", temperature=1).find_run("sum", 1, A) is None


def test_a_moved_output_folder_holds_the_same(model_store, tmp_path):
    model_store.write_run(artifact(), RUN_INPUT)
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    assert make_model_store(moved).find_run("sum", 1, A) is not None


# -- what cannot be read


BROKEN = {
    "emptied": b"",
    "truncated": None,
    "binary": b"\x00\xff\xfe" * 100,
    "foreign": b'{"schema_version":2,"fingerprint":"' + A.encode() + b'"}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "without fingerprint": b"null",
    "climbing": b"climbing",
}


def broken(kind: str, document: bytes) -> bytes:
    if kind == "truncated":
        return document[: len(document) // 2]
    if kind in ("without fingerprint", "climbing"):
        fingerprint = None if kind == "without fingerprint" else "../../../x" * 7
        return json.dumps(json.loads(document) | {"fingerprint": fingerprint}).encode()
    return BROKEN[kind]


@pytest.mark.parametrize("turn", [Path, as_files], ids=["database", "files"])
@pytest.mark.parametrize("kind", BROKEN)
def test_an_unreadable_document_counts_as_missing_and_is_kept_aside(model_store, tmp_path, said, kind, turn):
    run = Stored(tmp_path, model_store.write_run(artifact("old"), RUN_INPUT))
    verdict = Stored(tmp_path, model_store.write_evaluation(1, evaluation(judged=True, fingerprint=B, run_id="r1")))
    turn(tmp_path)
    for path in (run, verdict):
        path.write_bytes(broken(kind, path.read_bytes()))
    kept = {path: path.read_bytes() for path in (run, verdict)}
    assert model_store.find_run("sum", 1, A) is None
    assert model_store.find_evaluation(artifact(), B) is None
    model_store.refuse_newer("sum", 1)
    assert not said
    model_store.write_run(artifact("new"), RUN_INPUT)
    model_store.write_evaluation(1, evaluation(fingerprint=B, run_id="r1"))
    assert model_store.find_run("sum", 1, A)[0].final_output == "new"
    assert model_store.find_evaluation(artifact(), B) is not None
    aside = [path for path in kept if kind != "without fingerprint" or path == run]  # a verdict need not have one
    assert [path.with_name(path.name + ".unreadable").read_bytes() for path in aside] == [kept[path] for path in aside]
    assert len(said) == len(aside)
    assert all(str(path) in text for path, text in zip(aside, said, strict=True))
    assert {path.rpartition("/")[0] for path in list_stored(tmp_path, "*1*")} == {run.folder, verdict.folder}


def test_only_the_newest_unreadable_file_is_kept(model_store, tmp_path):
    for text in ("first", "second"):
        path = Stored(tmp_path, model_store.write_run(artifact(), RUN_INPUT))
        path.write_text(text)
    model_store.write_run(artifact(), RUN_INPUT)
    assert path.with_name("run_1.json.unreadable").read_text() == "second"


def never_comes(path) -> None:
    os.mkfifo(path)


def never_ends(path) -> None:
    path.symlink_to("/dev/zero")


def is_too_large(path) -> None:
    path.touch()
    os.truncate(path, MAX_RECORD + 1)


@pytest.mark.skipif(os.name != "posix", reason="needs FIFOs and devices")
@pytest.mark.parametrize("put", [never_comes, never_ends, is_too_large])
def test_a_path_that_is_not_a_plain_file_is_neither_waited_for_nor_read(model_store, tmp_path, said, put):
    place = Stored(tmp_path, model_store.write_run(artifact(), RUN_INPUT))
    as_files(tmp_path)
    place.unlink()
    put(place.file)
    assert model_store.find_run("sum", 1, A) is None
    model_store.refuse_newer("sum", 1)
    with pytest.raises(InfrastructureError, match=r"run_1\.json: cannot be read: found .*, expected "):
        place.run()
    model_store.write_run(artifact(), RUN_INPUT)
    assert place.run() == artifact()
    assert os.path.lexists(place.with_name("run_1.json.unreadable"))


def test_a_folder_in_the_place_of_a_run_is_kept_too(model_store, tmp_path, said):
    place = Stored(tmp_path, f"{model_store.runs}/sum/run_1.json")
    place.file.mkdir(parents=True)
    assert model_store.find_run("sum", 1, A) is None
    model_store.write_run(artifact(), RUN_INPUT)
    assert place.run() == artifact()
    assert place.with_name("run_1.json.unreadable").file.is_dir()


@pytest.mark.parametrize("turn", [lambda output: open_documents(output).close(), as_files], ids=["database", "files"])
def test_a_limit_of_this_process_is_no_missing_run(model_store, tmp_path, turn):
    model_store.write_run(artifact(), RUN_INPUT)
    turn(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        with pytest.raises(InfrastructureError, match=os.strerror(errno.EMFILE)):
            model_store.find_run("sum", 1, A)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_store_tells_its_lanes_warnings(tmp_path, said, caplog):
    store, other = Store(tmp_path), make_model_store(tmp_path)
    from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile

    model_store = store.of_model(None, RunProfile.default(), EvaluationProfile.default(), "gpt")
    model_store.warn("to the log")
    store.warn = said.append
    model_store.warn("to the session")
    other.warn("to the log")
    assert said == ["to the session"]
    assert [record.getMessage() for record in caplog.records] == ["to the log"] * 2


# -- clocks


def test_nothing_depends_on_the_clock(model_store, tmp_path):
    later = artifact("old", started_at="2099-01-01T00:00:00Z")
    path = Stored(tmp_path, model_store.write_run(later, RUN_INPUT))
    path.age(2**32)
    assert model_store.find_run("sum", 1, A)[0] == later
    model_store.write_run(artifact("new", started_at="1971-01-01T00:00:00Z"), RUN_INPUT)
    assert model_store.find_run("sum", 1, A)[0].final_output == "new"


def test_a_link_in_the_place_of_a_kept_file_counts_as_damaged(model_store, tmp_path):
    (tmp_path / "aside").write_bytes(b"packed")
    kept = [
        model_store.write_workspace("mine", 1, "r1", lambda file: file.write(b"packed") and None),
        model_store.write_output("mine", 1, "r1", "report.md", b"packed"),
    ]
    for path in kept:
        assert find_whole_file(tmp_path, path) is not None
        (tmp_path / path).unlink()
        (tmp_path / path).symlink_to(tmp_path / "aside")  # its content has the hash of the name
        assert find_whole_file(tmp_path, path) is None
