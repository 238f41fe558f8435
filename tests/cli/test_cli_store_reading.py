"""`agentbench store why`, `verify`, `export` and `show`: they read an output folder and change nothing."""

from __future__ import annotations

import json
import time

import pytest
from store_support import covered
from support.stored import Stored, as_files, find_stored, list_stored

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import AnswerVerdict
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.secrets.redaction import REDACTED
from pytest_agentbench.store.judgements import Judgements

SUPERSEDED = "run_1.????????.json"
KEY = "a" * 64
LONG_AGO = time.time() - 3600


@pytest.mark.parametrize("command", [["why", "abcd", "abce"], ["prune"], ["verify"], ["export"]])
def test_a_folder_that_is_no_store_is_named(store, tmp_path, command):
    code, out, err = store(*command, "--output", tmp_path)
    assert (code, out) == (1, "")
    assert err == f"{tmp_path}: found neither store.sqlite nor a folder runs, expected an output folder of sessions\n"


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


def test_secrets_are_neither_printed_nor_treated_as_equal(shop, store):
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
    """Damage one document or file of a sound store. Return a part of the expected problem."""
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
