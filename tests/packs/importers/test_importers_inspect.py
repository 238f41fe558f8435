"""Inspect's samples and logs become cases."""

from __future__ import annotations

import base64
import json
import struct
import zipfile
from pathlib import Path

import pytest
import regex
import yaml
from importing import FOREIGN, Importing, importing
from support.zstd_zip import write_zip, write_zstd_zip

from pytest_agentbench.packs.importers.inspect_archives import MAX_MEMBER

__all__ = ["importing"]


def sample(**fields: object) -> str:
    return json.dumps([{"input": "Say yes.", "target": "yes", "id": "first", **fields}])


@pytest.mark.slow
def test_the_log_of_an_evaluation_brings_scorer_prompt_and_answers(importing: Importing):
    found = importing.call("inspect", FOREIGN / "capitals.json")
    assert (found.code, found.err) == (0, "")
    assert found.files == ["fr/test.yaml", "jp/test.yaml", "predictions.jsonl"]
    case = found.case("jp")
    assert [message["role"] for message in case["input"]["messages"]] == ["system", "user", "assistant", "user"]
    assert case["input"]["messages"][-1]["content"].startswith("What is the capital of Japan?")
    assert case["deterministic_checks"][0]["declarative"] == {
        "kind": "regex_match",
        "pattern": r"(?:Tokyo|東京)[\s!-/:-@\[-`{-~]*\Z",
        "ignore_case": True,
    }
    printed = importing.run("--agentbench-predictions", "cases/it/predictions.jsonl")
    assert "4 passed" in printed, printed  # two samples of two epochs, as Inspect scored them


@pytest.mark.slow
def test_the_log_of_choices_is_scored_as_inspect_did(importing: Importing):
    found = importing.call("inspect", FOREIGN / "sums.json")
    assert found.code == 1
    [lost] = found.err.splitlines()
    assert lost.startswith("sums.json:377:5: not imported: target: found several choices (A, B)")
    assert "1 passed" in importing.run("--agentbench-predictions", "cases/it/predictions.jsonl")


def test_an_archive_is_the_same_log(importing: Importing):
    log = json.loads((FOREIGN / "capitals.json").read_text())
    path = importing.project / "capitals.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in log.pop("samples"):
            archive.writestr(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each))
        archive.writestr("header.json", json.dumps(log))
    found = importing.call("inspect", path)
    assert (found.code, found.files) == (0, ["fr/test.yaml", "jp/test.yaml", "predictions.jsonl"])
    assert found.case("fr")["metadata"]["imported_from"] == "capitals.eval!samples/fr_epoch_1.json:1"


def test_the_error_of_a_newer_compression_names_the_command_to_convert_it(importing: Importing):
    path = importing.project / "new.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
    content = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        struct.pack_into("<H", content, content.index(signature) + at, 99)
    path.write_bytes(content)
    found = importing.call("inspect", path)
    assert found.code == 1
    assert "inspect log convert" in found.err


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_a_file_that_is_not_an_archive_is_an_error(importing: Importing, content: bytes):
    found = importing.call("inspect", importing.write("x.eval", content))
    assert found.code == 1
    assert "cannot be read as a log of Inspect" in found.err


@pytest.mark.slow
def test_an_archive_that_would_fill_the_memory_is_not_unpacked(importing: Importing):
    path = importing.project / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"eval": {}}')
        with archive.open("samples/1_epoch_1.json", "w", force_zip64=True) as member:
            block = b" " * 2**22
            for _ in range(MAX_MEMBER // len(block) + 1):
                member.write(block)
    found = importing.call("inspect", path)
    assert found.code == 1
    assert "expected at most 268,435,456" in found.err


@pytest.mark.slow
def test_choices_are_shown_and_decided_by_letter(importing: Importing):
    rows = [{"input": "2 + 2?", "choices": ["3", "4"], "target": "B", "id": 7}]
    found = importing.call("inspect", importing.write("s.jsonl", json.dumps(rows[0]) + "\n"))
    assert (found.code, found.err) == (0, "")
    importing.write("cases/it/s-choices.demo.yaml", 'schema_version: 1\nanswers: {"7": B}\n')
    assert "1 passed" in importing.run("--model", "demo")
    [run] = (importing.project / "outputs" / "runs").rglob("run_1.json")
    assert "A. 3\nB. 4" in json.loads(run.read_text())["trace"][0]["content"]


def test_a_table_is_read_as_inspect_reads_it(importing: Importing):
    text = 'input,target,choices,id,metadata\nBigger?,A,"4,3",x,"{""level"": 1}"\n'
    found = importing.call("inspect", importing.write("s.csv", text))
    row = json.loads((found.folder / "s-choices.jsonl").read_text())
    assert (row["choices"], row["answer"], row["metadata"]["level"]) == (["4", "3"], "A", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("targets", "answer", "outcome"),
    [(["yes", "yep"], "I say YEP, sure", "1 passed"), (["yes", "yep"], "no", "1 failed"), ("a.b", "a.b", "1 passed")],
)
def test_one_of_several_targets_is_enough(importing: Importing, targets: object, answer: str, outcome: str):
    found = importing.call("inspect", importing.write("s.json", sample(target=targets)))
    [data] = [name for name in found.files if name.endswith(".jsonl")]
    script = {"schema_version": 1, "answers": {"first": answer}}
    importing.write(f"cases/it/{data.removesuffix('.jsonl')}.demo.yaml", json.dumps(script))
    assert outcome in importing.run("--model", "demo")


def test_files_go_to_the_workspace(importing: Importing):
    importing.write("data/notes.txt", "from the folder")
    files = {
        "a/text.txt": "inline\ntext",
        "b.bin": "data:application/octet-stream;base64," + base64.b64encode(b"\0\1").decode(),
        "c.txt": "data/notes.txt",
    }
    found = importing.call("inspect", importing.write("s.json", sample(files=files)))
    workspace = found.folder / "first" / "workspace"
    assert (workspace / "a/text.txt").read_text() == "inline\ntext"
    assert (workspace / "b.bin").read_bytes() == b"\0\1"
    assert (workspace / "c.txt").read_text() == "from the folder"
    assert found.case("first")["input"]["context"]["llm_probe"]["tools"] == ["read_file", "write_file", "list_files"]


def test_a_dockerfile_comes_along_and_other_sandboxes_are_named(importing: Importing):
    importing.write("Dockerfile", "FROM debian:12\nRUN true\n")
    importing.write("copying/Dockerfile", "FROM debian:12\nCOPY x /x\n")
    rows = [
        {"input": f"{name}?", "target": "yes", "id": name, "sandbox": sandbox}
        for name, sandbox in {
            "plain": "docker",
            "built": ["docker", "Dockerfile"],
            "copying": ["docker", "copying/Dockerfile"],
            "composed": ["docker", "compose.yaml"],
            "other": {"type": "k8s", "config": "values.yaml"},
            "broken": "[docker",
        }.items()
    ]
    found = importing.call("inspect", importing.write("s.json", json.dumps(rows)))
    assert found.code == 0
    assert found.case("built")["sandbox"] == {"dockerfile": "Dockerfile"}
    assert "tags" not in found.case("plain")
    for name in ("copying", "composed", "other", "broken"):
        assert found.case(name)["tags"] == ["manual"], name
    assert len(found.err.splitlines()) == 4


@pytest.mark.parametrize(
    ("scorer", "options", "target", "right", "wrong"),
    [
        ("match", {}, "Paris.", "It is **PARIS**", "Paris it is"),
        ("match", {"location": "begin"}, "5", "$5 each", "each $5"),
        ("match", {"location": "any", "ignore_case": False}, "Paris", "In Paris now", "in paris now"),
        ("match", {"location": "exact"}, "Paris", "`Paris`", "In Paris"),
        ("exact", {}, "Paris", "paris.", "In Paris"),
        ("exact", {}, "Paris", "The Paris!", "Theparis"),
        ("exact", {}, "The Louvre", "a louvre", "The Louvre the museum"),
        ("exact", {}, "A", "a.", "b"),
        ("includes", {}, "a.b", "x A.B y", "x a-b y"),
        ("includes", {}, " 5", "It is 5.", "It is 25."),
        ("f1", {}, ["Paris", "the city of Paris"], "Paris.", "It may be Paris, Rome or Bern"),
    ],
)
def test_patterns_of_scorers_match_like_those_of_inspect(
    importing: Importing, scorer: str, options: dict[str, object], target: object, right: str, wrong: str
):
    log = {
        "eval": {"scorers": [{"name": scorer, "options": options}]},
        "samples": [{"id": "x", "epoch": 1, "input": "Where?", "target": target}],
    }
    found = importing.call("inspect", importing.write("s.json", json.dumps(log)))
    evaluator = json.loads((found.folder / "s-checked.jsonl").read_text())["evaluator"]
    assert evaluator["func"] == "regex_match"
    flags = regex.IGNORECASE if evaluator["args"].get("ignore_case") else 0
    assert regex.search(evaluator["args"]["pattern"], right, flags)
    assert not regex.search(evaluator["args"]["pattern"], wrong, flags)


def test_several_numbers_are_no_pattern_of_their_digits(importing: Importing):
    log = {
        "eval": {"scorers": [{"name": "match", "options": {"numeric": True}}]},
        "samples": [{"id": "x", "epoch": 1, "input": "How many?", "target": ["5", "6"]}],
    }
    found = importing.call("inspect", importing.write("s.json", json.dumps(log)))
    assert found.code == 1
    assert "not imported: target: found several numbers (5, 6), expected one for numeric_match" in found.err


def test_unsupported_parameters_of_multiple_choice_are_reported(importing: Importing):
    step = {"solver": "multiple_choice", "params": {"template": None, "cot": True, "multiple_correct": False}}
    sample = {"id": "x", "epoch": 1, "input": "2 + 2?", "choices": ["3", "4"], "target": "B"}
    log = {"eval": {"scorers": [{"name": "choice"}]}, "plan": {"steps": [step]}, "samples": [sample]}
    found = importing.call("inspect", importing.write("s.json", json.dumps(log)))
    assert found.err == "s.json:1:1: plan.steps: cot of multiple_choice is left out\n"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ({"eval": {"scorers": 5}}, "s.json:1:1: eval.scorers: found 5, expected a list of objects"),
        ({"eval": {}, "plan": {"steps": ["x"]}}, "s.json:1:1: plan.steps: found ['x'], expected a list of objects"),
        ({"eval": {}, "plan": {"steps": [{"solver": "x", "params": [1]}]}}, "the solver 'x' is code"),
        ({"eval": {}, "samples": [{"input": "attachment://1", "attachments": [1]}]}, "attachments: found no text for"),
        ({"eval": {"scorers": [{"name": "match", "options": []}]}}, "found no row that can become a case"),
    ],
)
def test_a_log_of_another_form_is_an_error(importing: Importing, log: dict[str, object], reason: str):
    found = importing.call("inspect", importing.write("s.json", json.dumps({"samples": [], **log})))
    assert found.code == 1
    assert reason in found.err


def test_a_sample_with_a_failed_run_has_no_answer_and_is_named(importing: Importing):
    samples = [
        {"id": "x", "epoch": epoch, "input": "Where?", "target": "y", "output": {"completion": "y"}, "error": error}
        for epoch, error in ((1, None), (2, {"message": "lost"}))
    ]
    found = importing.call("inspect", importing.write("s.json", json.dumps({"eval": {}, "samples": samples})))
    assert "error: the run of the sample failed, so there is no answer to score" in found.err
    assert json.loads((found.folder / "predictions.jsonl").read_text()) == {"id": "x", "prediction": "y"}


def test_a_setup_script_is_kept_but_not_run(importing: Importing):
    found = importing.call("inspect", importing.write("s.json", sample(setup="touch /tmp/pwned")))
    case = found.case("first")
    assert (case["tags"], case["metadata"]["setup"]) == (["manual"], "touch /tmp/pwned")
    assert found.err.startswith("s.json:1:2: setup: a script is not run before a case")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"input": ""}, "input: found ''"),
        ({"input": [{"role": "user", "content": [{"type": "image", "image": "x.png"}]}]}, "input[0]: found an image"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0]: found a tool's message or call"),
        ({"input": [{"role": "system", "content": "x"}]}, "input: found no text of a user"),
        ({"target": {"a": 1}}, "target: found {'a': 1}"),
        ({"metadata": "x"}, "metadata: not valid JSON"),
        ({"files": {"../x": "y"}}, "files: found '../x', expected a path inside the workspace"),
        ({"files": {"/etc/x": "y"}}, "files: found '/etc/x'"),
        ({"files": {"victim:x": "y"}}, "files: found 'victim:x', a file of another sandbox"),
        ({"files": {"x": "data:;base64,*"}}, "not valid base64"),
        ({"files": {"x": "../secret.txt"}}, "a file outside of"),
        ({"files": {"x": "link.txt"}}, "a file outside of"),
        ({"files": {"a": "1", "a/b": "2"}}, "files: found 'a' and 'a/b', which cannot both exist"),
        ({"files": {"a": "1", "./a": "2"}}, "files: found 'a' and 'a', which cannot both exist"),
        ({"files": {"a" * 300: "1"}}, "expected names of at most 255 bytes"),
        ({"files": {"a": "data/"}}, "files: 'a' is the folder data/; name its files one by one"),
        ({"choices": ["", "yes"], "target": "B"}, "choices: found ['', 'yes']"),
        ({"choices": list(map(str, range(27))), "target": "B"}, "expected at most 26 texts that are not empty"),
        ({"choices": ["1", "2", "3"], "target": "A,C"}, "target: found several choices (A,C)"),
    ],
)
def test_a_sample_that_becomes_no_case_is_named(
    importing: Importing, fields: dict[str, object], reason: str, tmp_path_factory: pytest.TempPathFactory
):
    secret = importing.project.parent / "secret.txt"
    secret.write_text("secret")
    (importing.project / "link.txt").symlink_to(secret)
    importing.write("data/notes.txt", "in a folder")
    found = importing.call("inspect", importing.write("s.json", sample(**fields)))
    assert found.code == 1
    assert found.err.startswith("s.json:1:2: not imported: ")
    assert reason in found.err
    assert not found.folder.exists()


@pytest.mark.parametrize(
    ("scorer", "said", "note"),
    [
        ({"name": "model_graded_qa", "options": {}}, {"name": "llm_judgement", "threshold": 1.0}, ""),
        (
            {"name": "model_graded_fact", "options": {"instructions": "Be strict."}},
            {"name": "llm_judgement", "threshold": 1.0},
            "eval.scorers: instructions of model_graded_fact is left out",
        ),
        (
            {"name": "match", "options": {"numeric": True, "location": "begin"}},
            {"name": "numeric_match", "threshold": 1.0},
            "for which 60 % and 60 are the same number; it compares the last number, not the one at 'begin'",
        ),
        ({"name": "mine/own", "options": {}}, {"name": "exact_match", "threshold": 1.0}, "the scorer 'own' is code"),
    ],
)
def test_scorers_of_a_log_become_metrics(importing: Importing, scorer: object, said: object, note: str):
    log = {
        "eval": {"scorers": [scorer]},
        "plan": {"steps": [{"solver": "generate"}]},
        "samples": [{"id": "x", "epoch": 1, "input": [{"role": "user", "content": "attachment://1"}], "target": "yes"}],
    }
    log["samples"][0]["attachments"] = {"1": "Kept apart?"}  # type: ignore[index]
    found = importing.call("inspect", importing.write("s.json", json.dumps(log)))
    [descriptor] = found.folder.glob("*.dataset.yaml")
    assert yaml.safe_load(descriptor.read_text())["metrics"] == [said]
    assert note in found.err
    assert "Kept apart?" in Path(str(descriptor).replace(".dataset.yaml", ".jsonl")).read_text()


def old_sample(number: int, target: object, message: object, value: object, **fields: object) -> dict[str, object]:
    """Return a sample of a log of Inspect 0.3.41: without `completion`."""
    choices = [] if message is None else [{"message": {"role": "assistant", "content": message}}]
    return {
        "id": number,
        "epoch": 1,
        "input": "Which?",
        "target": target,
        "output": {"model": "m", "choices": choices},
        "scores": {"match": {"value": value, "answer": message}},
        **fields,
    }


def old_log(*samples: object, scores: object = ({"name": "match", "scorer": "match", "params": {}},)) -> str:
    """Return a log that has the name of its scorer only in its results, like those of 0.3.41 and 0.3.42."""
    return json.dumps({"eval": {"task": "t"}, "results": {"scores": scores}, "samples": samples})


@pytest.mark.slow
def test_an_old_log_keeps_its_answers_scorer_and_verdicts(importing: Importing):
    parts = [
        {"type": "reasoning", "reasoning": "Milan?"},
        {"type": "text", "text": "It is"},
        {"type": "text", "text": "Rome"},
    ]
    log = old_log(
        old_sample(1, "Paris", "It is Paris.", "C", files=[]),
        old_sample(2, "Rome", parts, "C"),
        old_sample(3, "Bern", "Bern or Basel", "I"),
        old_sample(4, "Oslo", "", "I"),
        old_sample(5, "Riga", None, "I"),
    )
    found = importing.call("inspect", importing.write("s.json", log))
    assert (found.code, found.err) == (0, "")
    predictions = [json.loads(line) for line in (found.folder / "predictions.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in predictions] == ["It is Paris.", "It is\nRome", "Bern or Basel", ""]
    printed = importing.run("--agentbench-predictions", "cases/it/predictions.jsonl", "-k", "not 5")
    assert "2 failed, 2 passed" in printed, printed


def test_a_scorer_of_results_decides_with_its_options_once_for_all_reducers(importing: Importing):
    scores = [
        {"name": "match", "scorer": "match", "reducer": reducer, "params": {"location": "begin"}}
        for reducer in ("mean", "max")
    ]
    found = importing.call("inspect", importing.write("s.json", old_log(old_sample(1, "a", "a b", "C"), scores=scores)))
    assert (found.code, found.err) == (0, "")
    row = json.loads((found.folder / "s-checked.jsonl").read_text())
    assert row["evaluator"]["args"]["pattern"].startswith(r"\A")


@pytest.mark.parametrize(
    ("name", "options", "fields", "value", "is_noted"),
    [
        ("match", {}, {}, "C", False),
        ("match", {}, {}, "I", True),
        ("match", {}, {}, 1, False),
        ("match", {}, {}, 0.0, True),
        ("match", {}, {}, True, False),
        ("match", {}, {}, "P", False),
        ("match", {}, {}, None, False),
        ("match", {}, {}, [1], False),
        ("match", {"numeric": True}, {"target": "12", "content": "It is 13"}, "C", True),
        ("match", {"numeric": True}, {"target": "12", "content": "It is 12"}, "C", False),
        ("choice", {}, {"target": "B", "choices": ["3", "4"], "content": "ANSWER: B"}, "C", False),
        ("choice", {}, {"target": "B", "choices": ["3", "4"], "content": "ANSWER: B"}, "I", True),
        ("model_graded_qa", {}, {}, "I", False),
        ("own", {}, {}, "I", False),
    ],
)
def test_a_verdict_that_differs_from_that_of_the_log_is_named(
    importing: Importing, name: str, options: object, fields: dict[str, object], value: object, is_noted: bool
):
    given = {"id": "x", "epoch": 1, "input": "Which?", "target": "yes", "content": "yes", **fields}
    given["output"] = {"choices": [{"message": {"content": given.pop("content")}}]}
    given["scores"] = {f"package/{name}": {"value": value}}
    log = {"eval": {"scorers": [{"name": name, "options": options}]}, "samples": [given]}
    found = importing.call("inspect", importing.write("s.json", json.dumps(log)))
    noted = "s.json:1:1: scores: the verdict here differs from the log's for x" in found.err.splitlines()
    assert noted == is_noted


def test_files_that_a_log_only_names_are_to_be_added(importing: Importing):
    log = old_log(old_sample(1, "a", "a", "C", files=["notes.txt", "b.txt"]))
    found = importing.call("inspect", importing.write("s.json", log))
    assert "s.json:1:" in found.err
    assert "files: the log names notes.txt, b.txt without content; put them into the workspace" in found.err
    case = found.case("1")
    assert (case["tags"], case["input"]["context"]["llm_probe"]["tools"][0]) == (["manual"], "read_file")


LONG = "Where is it? " * 20


def chunked(id_: object, epoch: int, **fields: object) -> dict[str, object]:
    """Return the members of a sample in chunks, in the form of Inspect 0.3.285; keys are the names of members."""
    folder = f"samples/name/{epoch}_epoch_{epoch}"
    shell = {
        "id": id_,
        "epoch": epoch,
        "input": "attachment://1",
        "target": "Paris",
        "output": {"choices": [{"message": {"content": "attachment://2"}}], "completion": "attachment://2"},
        "scores": {"match": {"value": "C"}},
        "message_refs": [[0, 2]],
        **fields,
    }
    return {
        f"{folder}/sample.json": shell,
        f"{folder}/metadata.json": {"level": "attachment://0"},
        f"{folder}/skeleton.json": {"spans": []},
        f"{folder}/messages/0.json": [{"role": "user", "content": "attachment://1"}],
        f"{folder}/events/0.json": [{"event": "model"}],
        f"{folder}/events/stats.json": {},
        f"{folder}/calls/0.json": [],
        f"{folder}/attachments/0.json": ["hard", LONG],
        f"{folder}/attachments/2.json": [f"{LONG}Paris"],
    }


def eval_log(
    importing: Importing, members: dict[str, object], *, header: str = "header.json", frame: int = 2**30
) -> Path:
    found = {header: {"version": 2, "eval": {"scorers": [{"name": "match"}]}, "plan": {}}, **members}
    path = importing.project / "s.eval"
    return write_zstd_zip(path, {name: json.dumps(value).encode() for name, value in found.items()}, frame=frame)


def whole(id_: object, epoch: int, answer: str = "Paris") -> dict[str, object]:
    sample = {"id": id_, "epoch": epoch, "input": "Where?", "target": "Paris", "output": {"completion": answer}}
    return {f"samples/other-{id_}_epoch_{epoch}.json": sample}


@pytest.mark.parametrize("frame", [100, 2**30])
def test_a_zstandard_log_with_whole_and_chunked_samples_is_read(importing: Importing, frame: int):
    members = {**whole("x", 1), **whole("x", 2, "Rome"), **chunked("y/z", 1), **chunked("y/z", 2)}
    found = importing.call("inspect", eval_log(importing, members, frame=frame))
    assert (found.code, found.err) == (0, "")
    rows = {row["id"]: row for row in map(json.loads, (found.folder / "s-checked.jsonl").read_text().splitlines())}
    assert rows.keys() == {"x", "y-z"}
    assert (rows["y-z"]["question"], rows["y-z"]["metadata"]["level"]) == (LONG, "hard")
    predictions = [json.loads(line) for line in (found.folder / "predictions.jsonl").read_text().splitlines()]
    assert {row["id"]: row["prediction"] for row in predictions} == {
        "x": ["Paris", "Rome"],
        "y-z": [f"{LONG}Paris", f"{LONG}Paris"],
    }


def test_a_sample_in_both_forms_is_read_once(importing: Importing):
    parts = chunked("y", 1)
    [sample] = whole("y", 1).values()
    found = importing.call("inspect", eval_log(importing, {**parts, "samples/name/1_epoch_1.json": sample}))
    row = json.loads((found.folder / "predictions.jsonl").read_text())
    assert row == {"id": "y", "prediction": "Paris"}


def test_the_log_of_a_killed_evaluation_has_its_samples(importing: Importing):
    found = importing.call("inspect", eval_log(importing, whole("x", 1), header="_journal/start.json"))
    assert (found.code, found.err) == (0, "s.eval:1:1: header.json: missing, so the evaluation has not finished\n")
    assert json.loads((found.folder / "s-checked.jsonl").read_text())["evaluator"]["func"] == "regex_match"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("samples/name/1_epoch_1/attachments/0.json", {}, "attachments/0.json:1:1: found {}, expected a list"),
        ("samples/name/1_epoch_1/attachments/0.json", ["hard"], "attachments: found no text for 'attachment://1'"),
        ("samples/name/1_epoch_1/metadata.json", [], "metadata.json:1:1: found [], expected an object"),
        ("samples/name/1_epoch_1/sample.json", "x", 'sample.json:1:1: found "x", expected an object'),
    ],
)
def test_a_broken_part_loses_its_sample(importing: Importing, name: str, value: object, reason: str):
    found = importing.call("inspect", eval_log(importing, {**whole("x", 1), **chunked("y", 1), name: value}))
    assert found.code == 1
    assert found.err.startswith("s.eval!samples/name/1_epoch_1/sample.json:1:1: not imported: ")
    assert reason in found.err
    assert "1 dataset row; 1 row not imported" in found.out


def test_a_log_that_is_none_is_an_error(importing: Importing):
    found = importing.call("inspect", eval_log(importing, {}, header="other.json"))
    assert "found neither header.json nor _journal/start.json, expected the log of an evaluation" in found.err


def test_a_bomb_in_a_zstandard_log_is_refused(importing: Importing):
    path = eval_log(importing, whole("x", 1))
    path = write_zip(path, {"header.json": (b"", MAX_MEMBER + 1, 0)})
    found = importing.call("inspect", path)
    assert found.code == 1
    assert "s.eval!header.json:1:1: found 268,435,457 bytes, expected at most 268,435,456" in found.err
