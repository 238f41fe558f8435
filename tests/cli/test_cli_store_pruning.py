"""`agentbench store prune` removes documents that no session needs, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import time

import pytest
from store_support import covered
from support.stored import Stored, as_files

from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.run import OutputArtifact
from pytest_agentbench.store.claims import open_claims
from pytest_agentbench.store.database import open_documents

SUPERSEDED = "run_1.????????.json"
KEY = "a" * 64
LONG_AGO = time.time() - 3600


def test_a_store_in_use_loses_nothing(shop, store):
    for repetition in (1, 2):
        run, _ = shop.run(repetition=repetition)
    shop.run(case_id="Other/Case", model_store=shop.model_store("smoke", "m/x"))
    shop.judge(run, shop.model_store(rubric="strict"))
    shop.run(case_id="down", status="provider_error")
    before = shop.names()
    assert store("prune", "--unreadable") == (0, "removed 0 files, 0.0 kB\n", "")
    assert shop.names() == before


def test_a_run_that_another_has_replaced_is_pruned(shop, store, turn):
    old, _ = shop.run(covered("old"))
    shop.run(covered("new"))
    turn(shop.output)
    before = shop.names()
    code, out, _ = store("prune", "--dry-run")
    *paths, runs, verdicts, total = out.splitlines()
    assert shop.names() == before
    digits = {old.fingerprint[:8], fingerprint([old.fingerprint, "a"])[:8]}
    assert sorted(paths) == [name for name in before if any(f"_1.{each}." in name for each in digits)]
    assert (code, runs.split(), verdicts.split()) == (0, ["1", "superseded", "runs"], ["1", "superseded", "verdicts"])
    assert total.startswith("would remove 6 files, ")
    assert store("prune")[1].splitlines()[-1] == total.replace("would remove", "removed")
    assert shop.names() == sorted(set(before) - set(paths))
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"


def test_a_session_finds_a_success_behind_a_failure(shop, store):
    """A provider's failure never replaces a success: the success is moved aside and found again."""
    good, _ = shop.run()
    shop.run(status="provider_error")
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"
    assert shop.model_store().find_run("sum", 1, good.fingerprint, lambda run: run.status == "success")[0] == good


def test_a_prompt_that_was_left_for_one_that_only_failed_loses_nothing(shop, store):
    shop.run(covered("old"))
    shop.run(covered("new"), status="provider_error")
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"


def test_reused_runs_stay_and_are_exported(shop, store):
    """After prompts A, B and A again, the last session uses A's run and verdict, which were moved aside."""
    old, _ = shop.run(covered("old"))
    new, _ = shop.run(covered("new"))
    assert [json.loads(line)["run"]["run_id"] for line in store("export")[1].splitlines()] == [new.run_id]
    for name in shop.names():
        Stored(shop.output, name).age(LONG_AGO)
    model_store = shop.model_store()
    assert model_store.find_run("sum", 1, old.fingerprint)[0] == old
    assert model_store.find_evaluation(old, fingerprint([old.fingerprint, "a"])) is not None
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"
    lines = [json.loads(line) for line in store("export")[1].splitlines()]
    assert {line["run"]["run_id"] for line in lines} == {old.run_id, new.run_id}
    assert all(len(line["evaluations"]) == 1 for line in lines)
    shop.run(covered("third"))
    assert store("prune")[1].splitlines()[:2] == ["       2 superseded runs", "       2 superseded verdicts"]


def test_a_replay_never_removes_a_paid_run(shop, store):
    shop.run(covered("paid"), cassette="recorded")
    shop.run(covered("replay"), cassette="replayed")
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"
    shop.run(covered("replay, edited"), cassette="replayed")
    assert "1 superseded runs" in store("prune")[1]


def test_a_session_finds_a_verdict_behind_an_error(shop, store):
    run, _ = shop.run()
    shop.judge(run, rubric="b")
    path = shop.judge(run, outcome="error")
    before = shop.names()
    assert len([name for name in before if "final_result_1" in name]) == 3
    store("prune")
    assert shop.names() == before
    assert path.exists()


def test_a_verdict_on_a_run_that_is_gone_goes(shop, store, turn):
    shop.run(case_id="stays")
    run, path = shop.run()
    shop.judge(run, shop.model_store("smoke"))
    turn(shop.output)
    before = shop.names()
    path.unlink()
    code, out, _ = store("prune")
    assert (code, out.splitlines()[0].split(maxsplit=1)) == (0, ["2", "orphaned verdicts"])
    assert [name for name in before if "stays" in name] == [name for name in shop.names() if "/sum/" not in name]
    assert not [name for name in shop.names() if name.startswith("evaluations") and "/sum/" in name]


def test_a_verdict_lives_by_a_run_of_another_suite(shop, store):
    run, _ = shop.run()
    shop.judge(run, shop.model_store("smoke"))
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"


def test_a_run_made_again_orphans_the_verdict_on_the_first(shop, store):
    first, _ = shop.run()
    shop.run(status="provider_error", case_id="other")
    model_store = shop.model_store()
    model_store.write_run(first.model_copy(update={"run_id": "f" * 32}), covered())
    assert "1 orphaned verdicts" in store("prune")[1]


def test_files_of_a_killed_session_go_and_those_of_a_running_one_stay(shop, store, turn):
    _, path = shop.run()
    old = [
        path.with_name(".0a1b2c3d-77-1.tmp"),
        Stored(shop.output, ".report.json.0a1b2c3d"),
        path.with_name("run_2.fingerprint_input.json"),
    ]
    verdict = shop.find("final_result_1.json")
    old += [verdict.with_name("judge_2.json"), verdict.with_name("summary_2.md")]
    young = [
        path.with_name(".0a1b2c3d-77-2.tmp"),
        path.with_name("run_3.fingerprint_input.json"),
        verdict.with_name("judge_3.json"),
    ]
    foreign = path.with_name(".notes.tmp")
    turn(shop.output)
    for each in (*old, *young, foreign):
        if each.name.endswith(".tmp") or not each.folder:  # files in any store
            each.file.parent.mkdir(parents=True, exist_ok=True)
            each.file.write_text("half")
        else:
            each.write_text("half")
    for each in (*old, foreign):
        each.age(LONG_AGO)
    assert store("prune")[1].startswith("       5 unfinished files\n")
    assert [each.exists() for each in (*old, *young, foreign)] == [False] * 5 + [True] * 4


def test_prune_stops_when_a_session_begins(shop, store, monkeypatch):
    """Its first removal is the moment in which a session makes its first claim."""
    for case_id in ("a", "b"):
        shop.run(covered("old"), case_id=case_id)
        shop.run(covered("new"), case_id=case_id)
    as_files(shop.output)
    claims, unlink = open_claims(str(shop.output)), os.unlink

    def begin(path):
        monkeypatch.undo()
        claims.take(KEY)
        unlink(path)

    monkeypatch.setattr(os, "unlink", begin)
    code, out, err = store("prune", "--output", shop.output)
    claims.release(KEY)
    assert (code, out.splitlines()[:-1]) == (1, ["       1 superseded runs"])
    assert err.startswith(f"{shop.output}: a session is making runs there")


def test_a_run_names_no_other_runs_archive(shop, store):
    model_store = shop.model_store()
    archive = model_store.write_workspace("other", 1, f"{1:032x}", lambda file: file.write(b"tar"))
    shop.run(case_id="other", model_store=model_store, workspace=archive)
    shop.run(covered("old"), workspace=archive)
    shop.run(covered("new"))
    assert "1 superseded runs" in store("prune")[1]
    assert (shop.output / archive).exists()


@contextlib.contextmanager
def claimed(output):
    claims = open_claims(str(output))
    assert claims.take(KEY)
    try:
        yield
    finally:
        claims.release(KEY)


def test_nothing_goes_while_a_session_is_at_work(shop, store):
    shop.run(covered("old"))
    shop.run(covered("new"))
    before = shop.names()
    with claimed(shop.output):
        code, out, err = store("prune")
        assert (code, out) == (1, "removed 0 files, 0.0 kB\n")
        assert err == "outputs: a session is making runs there; prune when it has ended\n"
        assert store("prune", "--dry-run")[0] == 0
    assert [name for name in shop.names() if ".locks" not in name] == before


def test_unreadable_files_are_removed_only_on_request(shop, store, turn):
    _, broken = shop.run(case_id="broken")
    _, newer = shop.run(case_id="newer")
    _, whole = shop.run()
    turn(shop.output)
    broken.write_text(broken.read_text()[:100])
    newer.write_text(newer.read_text().replace('"schema_version":2', '"schema_version":3'))
    aside = whole.with_name("run_2.json.unreadable")
    aside.write_text("")
    before = shop.names()
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"
    out = store("prune", "--unreadable")[1]
    assert [line.split(maxsplit=1) for line in out.splitlines()[:-1]] == [
        ["2", "unreadable files"],
        ["1", "orphaned verdicts"],
    ]
    gone = sorted(set(before) - set(shop.names()))
    assert {name.split("/")[4 if name.startswith("runs") else 5] for name in gone} == {"broken", "sum"}
    assert newer.exists()
    assert whole.exists()
    assert not aside.exists()


def test_archives_go_with_their_runs(shop, store):
    model_store = shop.model_store()

    def archived(prompt):
        path = model_store.write_workspace("sum", 1, f"{shop.draws + 1:032x}", lambda file: file.write(prompt.encode()))
        shop.run(covered(prompt), model_store=model_store, workspace=path)
        return shop.output / path

    old, new = archived("old"), archived("new")
    lost = new.with_name(f"workspace.00000009.{'0' * 16}.tar")
    lost.touch()
    os.utime(lost, (LONG_AGO, LONG_AGO))
    assert "1 superseded runs" in store("prune")[1]
    assert [path.exists() for path in (old, new, lost)] == [False, True, False]


def test_single_files_that_runs_left_go_with_their_runs(shop, store):
    model_store = shop.model_store()

    def left(prompt):
        run_id = f"{shop.draws + 1:032x}"[::-1]
        uri = model_store.write_output("sum", 1, run_id, "report.md", prompt.encode())
        output = OutputArtifact(artifact_id="report.md", artifact_type="workspace_file", uri=uri)
        shop.run(covered(prompt), model_store=model_store, output_artifacts=(output,))
        return shop.output / uri

    old, new = left("old"), left("new")
    lost = new.with_name(f"00000009.{'0' * 16}.report.md")
    foreign = new.with_name("notes")
    for path in (lost, foreign):
        path.touch()
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert "1 superseded runs" in store("prune")[1]
    assert [path.exists() for path in (old, new, lost, foreign)] == [False, True, False, True]


@pytest.mark.parametrize(
    "place", ["runs", "evaluations", ".locks", "runs/suit_default", "runs/*/*/gpt/sum", "runs/*/*"]
)
def test_nothing_is_removed_or_exported_through_a_link_to_a_folder(shop, store, tmp_path, place):
    run, _ = shop.run(covered("old"))
    shop.judge(run)
    shop.run(covered("new"))
    (shop.output / ".locks").mkdir(exist_ok=True)
    as_files(shop.output)
    [planted] = shop.output.glob(place)
    planted.rename(tmp_path / "elsewhere")
    planted.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    before = sorted(map(str, tmp_path.rglob("*")))
    for command in (("prune", "--unreadable"), ("export",)):
        code, out, err = store(*command)
        assert (code, out) == (1, "")
        assert f"{planted.relative_to(tmp_path)}: is a link to another folder" in err
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_a_link_in_place_of_a_record_is_none(shop, store):
    shop.run()
    as_files(shop.output)
    [run] = shop.output.glob("runs/*/*/gpt/sum/run_1.json")
    run.rename(run.with_name("mine.json"))
    run.symlink_to("mine.json")
    assert store("export")[:2] == (0, "")


def test_files_of_runs_are_neither_stored_nor_removed_through_a_link(shop, tmp_path):
    model_store = shop.model_store()
    shop.run(model_store=model_store)
    as_files(shop.output)
    case = next(shop.output.glob("runs/*/*/gpt/sum"))
    (case / "run_1.artifacts").symlink_to(tmp_path)
    (case / "run_2.artifacts").mkdir()
    (case / "run_2.artifacts" / "outputs").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="not followed"):
        model_store.write_workspace("sum", 1, f"{1:032x}", lambda file: file.write(b"tar"))
    for repetition in (1, 2):
        with pytest.raises(OSError, match="not followed"):
            model_store.write_output("sum", repetition, f"{1:032x}", "a.txt", b"text")
    assert sorted(tmp_path.iterdir()) == before


def test_the_output_folder_itself_may_be_a_link(shop, store, tmp_path):
    shop.run()
    shop.output.rename(tmp_path / "scratch")
    shop.output.symlink_to(tmp_path / "scratch")
    assert '"run":' in store("export")[1]
    assert store("prune")[0] == 0


@pytest.mark.slow
def test_pruning_gives_room_back(shop, store):
    for number in range(60):
        shop.run(covered(f"{number} " * 5_000))
    open_documents(shop.output).close()
    before = (shop.output / "store.sqlite").stat().st_size
    assert store("prune")[0] == 0
    open_documents(shop.output).close()
    assert (shop.output / "store.sqlite").stat().st_size < before / 4
