from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.stored import Stored, as_files, find_stored, list_stored

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.cli import main
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import AnswerVerdict, Evaluation, JudgeIteration, JudgeResult
from pytest_agentbench.records.run import FinalOutputEvent, OutputArtifact, RunArtifact, RunError
from pytest_agentbench.secrets.redaction import REDACTED, Redactor
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.store.claims import open_claims
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.judgements import Judgements

SUPERSEDED = "run_1.????????.json"
KEY = "a" * 64
LONG_AGO = time.time() - 3600


def covered(prompt="2 + 2?", **fields):
    return {"case_id": "sum", "messages": [{"role": "user", "content": prompt}], "schema_version": 2, **fields}


class Shop:
    """A store in `outputs`, written as sessions write it."""

    def __init__(self, folder):
        self.output = folder / "outputs"
        self.draws = 0

    def model_store(self, suite=None, model="gpt", *, rubric="standard", **settings):
        store = Store(self.output, Redactor({"API_KEY": "hunter2-hunter2"}))
        run = RunProfile(schema_version=1, run_profile_id="p", title="P", **settings)
        evaluation = EvaluationProfile(schema_version=1, evaluation_profile_id=rubric, title="E")
        return store.of_model(suite, run, evaluation, model)

    def run(self, content=None, *, case_id="sum", repetition=1, model_store=None, status="success", **fields):
        """Stores a run with its verdict; the run and its path."""
        content = covered() if content is None else content
        model_store = model_store or self.model_store()
        self.draws += 1
        error = None if status == "success" else RunError(code="x", message="down")
        artifact = RunArtifact(
            run_id=f"{self.draws:032x}",
            case_id=case_id,
            runner_type="llm_probe",
            model={"model_id": "gpt"},
            repetition=repetition,
            fingerprint=fingerprint(content),
            status=status,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_seconds=0.1,
            error=error,
            **{"trace": (FinalOutputEvent(sequence=0, at=0.0, content="4"),), **fields},
        )
        path = Stored(self.output, model_store.write_run(artifact, content))
        if status == "success":
            self.judge(artifact, model_store)
        return artifact, path

    def judge(self, artifact, model_store=None, *, outcome="passed", rubric="a"):
        model_store = model_store or self.model_store()
        iteration = JudgeIteration(judge_run_id="j", judge_id="j", model="m", repetition=1, status="invalid_output")
        judged = JudgeResult(
            method="mean",
            pass_threshold=0.5,
            overall=7,
            dimensions={},
            passed=True,
            sampled=1,
            iterations=(iteration,),
        )
        evaluation = Evaluation(
            case_id=artifact.case_id,
            run_id=artifact.run_id,
            run_fingerprint=artifact.fingerprint,
            fingerprint=None if outcome == "error" else fingerprint([artifact.fingerprint, rubric]),
            judge=judged,
            outcome=outcome,
        )
        return Stored(
            self.output, model_store.write_evaluation(artifact.repetition, evaluation, [{"content": "judge this"}])
        )

    def names(self):
        """All documents and files but locks and descriptions of profiles, relative to the store."""
        return [name for name in list_stored(self.output) if not name.endswith(".fingerprint.json")]

    def find(self, pattern):
        """Finds the one document that is named so."""
        [found] = find_stored(self.output, pattern)
        return found


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path)


@pytest.fixture(params=[Path, as_files], ids=["database", "files"])
def turn(request):
    """Turn the documents of a store into files, as on a network file system, or leave the store as it is."""
    return request.param


@pytest.fixture
def store(capsys):
    def call(*argv):
        code = main(["store", *map(str, argv)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.mark.parametrize("command", [["why", "abcd", "abce"], ["prune"], ["verify"], ["export"]])
def test_a_folder_that_is_no_store_is_named(store, tmp_path, command):
    code, out, err = store(*command, "--output", tmp_path)
    assert (code, out) == (1, "")
    assert err == f"{tmp_path}: found no store.sqlite and no folder runs in it, expected an output folder of sessions\n"


# -- why


def test_why_shows_each_field_that_differs(shop, store):
    prompt = "You are a clerk.\nAnswer in one word.\nWhat is the sum of two and two, please?\n"
    common = {"tools": ["a", "c"], "attachments": [{"name": "x", "sha256": "a" * 64}]}
    model = {"model_id": "gpt", "parameters": {"temperature": 0}}
    shop.run(covered(prompt, model=model, **common))
    other = {**model, "parameters": {"temperature": 0.7, "seed": 1}}
    common = {"tools": ["a", "b", "c"], "attachments": [{"name": "x", "sha256": "b" * 64}]}
    _, b = shop.run(covered(prompt.replace("one word", "a sentence"), model=other, **common))
    superseded = shop.find(SUPERSEDED)
    code, out, err = store("why", superseded, b)
    assert (code, err) == (0, "")
    head, _, body = out.partition("\n\n")
    assert head.splitlines()[0] == f"A  outputs/{superseded.path}"
    assert ", success, 2026-01-01 00:00:00+00:00" in head
    assert body.splitlines() == [
        f"attachments[0].sha256: {'a' * 12}... -> {'b' * 12}...",
        "messages[0].content:",
        "  @ line 2",
        "  - Answer in one word.",
        "  + Answer in a sentence.",
        "model.parameters.seed: only in B: 1",
        "model.parameters.temperature: 0 -> 0.7",
        'tools[1]: only in B: "b"',
    ]


def test_runs_are_named_by_path_id_or_fingerprint(shop, store):
    run_a, a = shop.run(covered("one"))
    run_b, _ = shop.run(covered("two"), case_id="other")
    expected = 'messages[0].content: "one" -> "two"'
    for name_a in (a, a.path, a.with_name("run_1.fingerprint_input.json"), run_a.run_id):
        for name_b in (run_b.fingerprint, run_b.fingerprint[:6]):
            assert store("why", name_a, name_b)[1].splitlines()[-1] == expected


def test_a_name_of_several_runs_or_none_is_refused(shop, store):
    paths = [shop.run(case_id=f"c{n}")[1] for n in range(7)]
    digits = fingerprint(covered())[:8]
    code, out, err = store("why", digits, digits)
    assert (code, out) == (1, "")
    first, *named = err.splitlines()
    assert first == f"found several runs that begin with {digits!r}, expected one; give its path:"
    assert named == [*(f"  outputs/{path.path}" for path in paths[:5]), "  ..."]
    assert "found no run whose run_id or fingerprint begins with 'ffff'" in store("why", "ffff", "ffff")[2]
    assert "found 'xyz', expected the path of a stored run" in store("why", "xyz", "ffff")[2]


def test_why_names_further_differences_of_runs(shop, store):
    _, a = shop.run()
    _, b = shop.run(case_id="other", status="provider_error")
    assert store("why", a, a)[1].endswith("A and B are one run.\n")
    out = store("why", a, b)[1]
    assert "The same input: B is another draw of it." in out
    assert "B ended provider_error: such a run is made again." in out
    _, c = shop.run(model_store=shop.model_store(sandbox="local"))
    assert store("why", a, c)[1].splitlines()[-1] == 'run_profile.sandbox: "auto" -> "local"'


def test_secrets_are_neither_shown_nor_taken_for_equal(shop, store):
    _, a = shop.run(covered("the key is hunter2-hunter2"))
    _, b = shop.run(covered("the key is hunter2-hunter2 "), case_id="other")
    c = shop.run(covered(f"the key is {REDACTED}"), case_id="third")[1]
    assert "hunter2" not in store("why", a, b)[1]
    assert "the difference is a secret, which is not stored" in store("why", a, c)[1]


def test_contents_of_files_cannot_control_the_terminal(shop, store):
    _, a = shop.run(covered("one\x1b[2J"))
    _, b = shop.run(covered("two\x1b]0;x\x07" * 20), case_id="other")
    assert "\x1b" not in store("why", a, b)[1]


def test_a_run_without_its_input_is_named(shop, store):
    _, a = shop.run()
    a.with_name("run_1.fingerprint_input.json").write_text("[")
    assert "run_1.fingerprint_input.json: is no JSON" in store("why", a, a)[2]
    a.with_name("run_1.fingerprint_input.json").unlink()
    assert "run_1.fingerprint_input.json: cannot be read: No such file" in store("why", a, a)[2]


def test_a_run_is_named_from_within_its_folder_too(shop, store, monkeypatch):
    _, a = shop.run(covered("one"))
    shop.run(covered("two"))
    superseded = shop.find(SUPERSEDED)
    as_files(shop.output)
    monkeypatch.chdir(a.file.parent)
    out = store("why", superseded.name, a.name, "--output", shop.output)[1]
    assert out.splitlines()[-1] == 'messages[0].content: "one" -> "two"'
    assert store("why", "", "x", "--output", shop.output)[2].startswith("found '', expected the path of a stored run")


def test_a_profile_without_its_settings_hides_no_difference(shop, store):
    _, a = shop.run(covered("one"))
    _, b = shop.run(covered("two"), case_id="other")
    shop.find("runs/*/*/.fingerprint.json").write_text("{}")
    assert store("why", a, b)[1].splitlines()[-1] == 'messages[0].content: "one" -> "two"'


# -- prune


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
    """A provider's failure never takes the place of a success: the success lies aside and is found again."""
    good, _ = shop.run()
    shop.run(status="provider_error")
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"
    assert shop.model_store().find_run("sum", 1, good.fingerprint, lambda run: run.status == "success")[0] == good


def test_a_prompt_that_was_left_for_one_that_only_failed_loses_nothing(shop, store):
    shop.run(covered("old"))
    shop.run(covered("new"), status="provider_error")
    assert store("prune")[1] == "removed 0 files, 0.0 kB\n"


def test_reused_runs_stay_and_are_exported(shop, store):
    """Prompt A, then B, then A again: A's run and verdict lie aside, and are those of the last session."""
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


# -- verify


def test_a_sound_store_has_no_problems(shop, store):
    model_store = shop.model_store()
    path = model_store.write_workspace("sum", 1, f"{1:032x}", lambda file: file.write(b"tar"))
    run, _ = shop.run(model_store=model_store, workspace=path)
    shop.judge(run, shop.model_store("smoke"))
    shop.run(covered("new"), case_id="ÜBER/x" * 40)
    Judgements(shop.output).keep("a" * 64, "m", AnswerVerdict(correct=True, reason="so"))
    expected = "2 runs, 1 workspaces, 3 verdicts, 1 votes: 0 problems\n"
    assert store("verify") == (0, expected, "")
    moved = shop.output.rename(shop.output.with_name("elsewhere"))
    assert store("verify", "--output", moved) == (0, expected, "")


def test_inputs_without_their_secrets_prove_nothing(shop, store):
    shop.run(covered("the key is hunter2-hunter2"))
    code, out, _ = store("verify")
    assert code == 0
    assert "1 inputs without their secrets, which prove nothing" in out


def damaged(kind, shop, turn):
    """Damages one thing of a sound store; a part of what is said of it."""
    model_store = shop.model_store()
    archive = shop.output / model_store.write_workspace("sum", 1, f"{1:032x}", lambda file: file.write(b"tar"))
    _, path = shop.run(model_store=model_store, workspace=str(archive.relative_to(shop.output)))
    judge = shop.find("judge_1.json")
    result = judge.with_name("final_result_1.json")
    covered_input = path.with_name("run_1.fingerprint_input.json")
    turn(shop.output)
    match kind:
        case "truncated run":
            path.write_bytes(path.read_bytes()[:-20])
            return f"{path}: is no RunArtifact"
        case "emptied run":
            path.write_bytes(b"")
            return f"{path}: is no RunArtifact"
        case "newer run":
            path.write_text(path.read_text().replace('"schema_version":2', '"schema_version":9'))
            return f"{path}: found schema_version 9, expected at most 2"
        case "another input":
            covered_input.write_text(covered_input.read_text().replace("2 + 2", "2 + 3"))
            return f"{covered_input}: found an input of another fingerprint than the run's"
        case "broken input":
            covered_input.write_text("{")
            return f"{covered_input}: cannot be read"
        case "damaged archive":
            archive.write_bytes(b"tax")
            return "which is missing or damaged"
        case "missing archive":
            archive.unlink()
            return "which is missing or damaged"
        case "archive outside":
            path.write_text(path.read_text().replace(str(archive.relative_to(shop.output)), "../../etc/passwd"))
            return "workspace: found '../../etc/passwd', which is missing or damaged"
        case "misplaced run":
            for name in path.beside():
                if name != "run_1.artifacts":
                    path.with_name(name).rename(Stored(shop.output, f"{path.folder.replace('/sum', '/other')}/{name}"))
            return "case_id: found 'sum', expected the case that the folder is named by"
        case "another repetition":
            path.rename(path.with_name("run_2.json"))
            return "found repetition 1, expected the one in the file's name"
        case "another aside":
            path.rename(path.with_name("run_1.00000000.json"))
            return "expected the one that the file is named by"
        case "truncated verdict":
            result.write_text("{")
            return f"{result}: is no Evaluation"
        case "truncated judge":
            judge.write_text("{")
            return f"{judge}: cannot be read: file: Invalid JSON"
        case "another profile":
            described = shop.find("runs/*/*/.fingerprint.json")
            described.write_text(described.read_text().replace('"auto"', '"local"'))
            return f"{described}: found an input of another fingerprint"
        case "broken profile":
            described = shop.find("runs/*/*/.fingerprint.json")
            described.write_text("[]")
            return f"{described}: cannot be read"
        case "foreign vote":
            votes = Judgements(shop.output)
            votes.keep("a" * 64, "m", AnswerVerdict(correct=True, reason="so"))
            vote = shop.find(f"{'a' * 64}.json")
            vote = vote.rename(vote.with_name(f"{'b' * 64}.json"))
            return f"{vote}: key: found"
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "truncated run",
        "emptied run",
        "newer run",
        "another input",
        "broken input",
        "damaged archive",
        "missing archive",
        "archive outside",
        "misplaced run",
        "another repetition",
        "another aside",
        "truncated verdict",
        "truncated judge",
        "another profile",
        "broken profile",
        "foreign vote",
    ],
)
def test_damage_is_found(shop, store, tmp_path, kind, turn):
    expected = damaged(kind, shop, turn).replace(f"{tmp_path}/", "")
    code, out, err = store("verify")
    *problems, summary = out.splitlines()
    assert (code, err) == (1, "")
    assert any(expected in problem for problem in problems), out
    assert f": {len(problems)} problem" in summary


# -- export


def test_every_run_is_a_line_with_its_verdicts(shop, store):
    shop.run(covered("old"))
    run, path = shop.run(covered("new"))
    other = shop.judge(run, shop.model_store("smoke", rubric="strict"))
    plain, _ = shop.run(case_id="other", status="provider_error")
    code, out, err = store("export")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["run"]["run_id"] for line in lines] == [plain.run_id, run.run_id]
    assert lines[0]["evaluations"] == []
    assert lines[1]["artifact"] == path.path
    assert RunArtifact.model_validate(lines[1]["run"], strict=False) == run
    own, strict = lines[1]["evaluations"]
    assert own["evaluation"]["run_id"] == strict["evaluation"]["run_id"] == run.run_id
    assert strict["path"] == other.path


def test_export_to_a_file_is_whole_or_not_there(shop, store, tmp_path):
    shop.run(covered("逆\n"))
    assert store("export", "-o", "runs.jsonl") == (0, "", "")
    [line] = (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["run"]["case_id"] == "sum"
    code, _, err = store("export", "-o", "none/runs.jsonl")
    assert code == 1
    assert err == "-o none/runs.jsonl: cannot be written: No such file or directory\n"


def test_a_run_that_cannot_be_exported_is_named_and_the_others_are_exported(shop, store, tmp_path):
    _, broken = shop.run(case_id="a")
    shop.run(case_id="b")
    shop.run(case_id="c")
    broken.write_text("{")
    verdict = shop.find("evaluations/*/*/*/*/b/final_result_1.json")
    verdict.write_text("")
    code, out, err = store("export")
    assert code == 1
    assert [json.loads(line)["run"]["case_id"] for line in out.splitlines()] == ["b", "c"]
    named = [line.partition(": is no")[0] for line in err.splitlines()]
    assert named == [f"outputs/{each.path}" for each in (broken, verdict)]


def test_the_documented_layout_is_written_whole(shop, store, tmp_path):
    shop.run(covered("old"))
    shop.run(covered("new"))
    Judgements(shop.output).keep(KEY, "m", AnswerVerdict(correct=True, reason="so"))
    stored = {path.path: path.read_bytes() for path in find_stored(shop.output, "*")}
    expected = f"wrote {len(stored)} files below there\n"
    assert store("export", "--files", "there") == (0, expected, "")
    assert {path: (tmp_path / "there" / path).read_bytes() for path in stored} == stored
    assert list_stored(tmp_path / "there") == sorted(stored)
    assert store("export", "--files")[1] == f"wrote {len(stored)} files below outputs\n"
    assert store("verify", "--output", "there") == store("verify")
    (tmp_path / "taken").write_text("a file")
    code, out, err = store("export", "--files", "taken")
    assert (code, out, err.startswith("taken: cannot be written: ")) == (1, "", True)


# -- show


def test_a_case_is_shown_with_its_verdicts(shop, store):
    run, path = shop.run()
    shop.run(case_id="Other/Case", status="provider_error")
    assert store("show") == (0, "".join(f"{name}\n" for name in sorted(["sum", slug("Other/Case")])), "")
    code, out, err = store("show", "sum")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"sum  gpt  repetition 1: success, {run.model_dump(mode='json')['started_at']}",
        f"  {path.path}",
        "  > 4",
        "  verdict: passed",
    ]
    assert "> down" in store("show", "Other/Case")[1]
    assert store("show", slug("Other/Case")) == store("show", "Other/Case")
    [line] = store("show", "sum", "--json")[1].splitlines()
    assert line == store("export")[1].splitlines()[-1]
    code, out, err = store("show", "none")
    assert (code, out) == (1, "")
    assert "found no run of a case 'none'" in err


def test_shown_runs_cannot_control_the_terminal(shop, store):
    shop.run(trace=(FinalOutputEvent(sequence=0, at=0.0, content="red \x1b[31m"),))
    assert "\x1b" not in store("show", "sum")[1]


@pytest.mark.slow
def test_pruning_gives_room_back(shop, store):
    for number in range(60):
        shop.run(covered(f"{number} " * 5_000))
    open_documents(shop.output).close()
    before = (shop.output / "store.sqlite").stat().st_size
    assert store("prune")[0] == 0
    open_documents(shop.output).close()
    assert (shop.output / "store.sqlite").stat().st_size < before / 4
