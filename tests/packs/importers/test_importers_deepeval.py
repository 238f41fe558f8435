"""Goldens as DeepEval's `EvaluationDataset.save_as` writes them become cases."""

from __future__ import annotations

import csv
import io
import json
import resource
import shlex
from pathlib import Path
from typing import NoReturn

import pytest
from importing import FOREIGN, Importing, importing

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import Draft, FileContents, Place
from pytest_agentbench.packs.importers.folders import write_drafts

__all__ = ["importing"]


@pytest.mark.parametrize(
    ("file", "places"),
    [("goldens.json", ("25:5", "78:5")), ("goldens.csv", ("3:1", "5:1")), ("goldens.jsonl", ("2:1", "4:1"))],
)
def test_every_format_that_deepeval_saves_gives_the_same_cases(
    importing: Importing, file: str, places: tuple[str, str]
):
    found = importing.call("deepeval", FOREIGN / file)
    assert found.code == 0
    assert found.err.splitlines() == [
        f"{file}:{places[0]}: actual_output: not scored: expected_tools need tools_called",
        f"{file}:{places[0]}: expected_tools: offer the agent search_tickets by tools, mcp_servers or its own runner",
        f"{file}:{places[1]}: the case has no checks, so it gets report_only: true; add checks or expectations",
    ]
    assert found.files == [
        "golden-2/test.yaml",
        "golden-3/test.yaml",
        "golden-4/test.yaml",
        "goldens.dataset.yaml",
        "goldens.jsonl",
    ]
    tools = found.case("golden-2")
    assert tools["deterministic_checks"][0]["declarative"] == {"kind": "tool_called", "name": "search_tickets"}
    assert tools["reference"] == "Ticket 12 is open."
    assert tools["metadata"]["expected_tools"][0]["inputParameters"] == {"state": "open"}
    judged = found.case("golden-3")
    assert [each["text"] for each in judged["expectations"]["hard_expectations"]] == [
        "Names the limit of 30 days",
        "It must not be so that: Blame the customer",
    ]
    assert judged["require_hard"] is True
    assert found.case("golden-4")["report_only"] is True


@pytest.mark.slow
def test_imported_goldens_run_with_a_script(importing: Importing):
    found = importing.call("deepeval", FOREIGN / "goldens.json")
    importing.write("cases/it/goldens.demo.yaml", "schema_version: 1\nanswers: {capital-of-france: Paris}\n")
    importing.write("cases/it/golden-4/demo.yaml", "schema_version: 1\nreplies: [{content: No.}]\n")
    printed = importing.run("--model", "demo", "-k", "capital or golden-4")
    assert "2 passed" in printed, printed
    assert "1 case for a judge" in found.out


@pytest.mark.slow
def test_recorded_answers_are_scored_as_predictions(importing: Importing):
    rows = [
        {"input": f"Capital {at}?", "expectedOutput": f"Town {at}", "actualOutput": answer}
        for at, answer in enumerate(["Town 0", "wrong"])
    ]
    importing.call("deepeval", importing.write("test_cases.json", json.dumps(rows)))
    printed = importing.run("--agentbench-predictions", "cases/it/predictions.jsonl")
    assert "1 failed, 1 passed" in printed, printed


@pytest.mark.parametrize(
    ("golden", "reason"),
    [
        ({"scenario": "A customer calls."}, "scenario: a conversation with a simulated user"),
        ({"expected_output": "Paris"}, "input: found None, expected a text"),
        ({"input": "  "}, "input: found '  ', expected a text"),
        ({"input": "Look: [DEEPEVAL:IMAGE:1]"}, "input: found an image or PDF"),
        ({"input": "x", "expected_output": 3}, "expected_output: found 3, expected a text"),
        ({"input": "x", "expected_tools": [{"nme": "y"}]}, "expected_tools: expected a list of objects with a name"),
        ({"input": "x", "expectations": {"must": "y"}}, "expectations: expected must and must_not"),
        ({"input": "x", "additional_metadata": "y"}, "additional_metadata: not valid JSON"),
        ("x", 'found "x", expected an object'),
        ({"input": "\ud800"}, "half of a surrogate pair"),
        (
            {"input": "x", "expected_output": "a", "expectedOutput": "b"},
            "expectedOutput: found two values, 'a' and 'b'",
        ),
    ],
)
def test_a_golden_that_becomes_no_case_is_named(importing: Importing, golden: object, reason: str):
    text = json.dumps({"input": "Say yes.", "expected_output": "yes"}) + "\n" + json.dumps(golden) + "\n"
    found = importing.call("deepeval", importing.write("g.jsonl", text))
    assert found.code == 1
    assert found.err.startswith("g.jsonl:2:1: not imported: ")
    assert reason in found.err
    assert "0 case files, 1 dataset row; 1 row not imported" in found.out


def test_an_empty_value_in_another_spelling_takes_nothing_away(importing: Importing):
    row = {"input": "x", "expected_output": "yes", "expectedOutput": None}
    found = importing.call("deepeval", importing.write("g.jsonl", json.dumps(row)))
    assert json.loads((found.folder / "g.jsonl").read_text())["answer"] == "yes"


def test_metadata_that_nests_too_deep_is_named(importing: Importing):
    deep: object = "x"
    for _ in range(60):
        deep = [deep]
    rows = [{"input": "Say yes.", "expected_output": "yes"}, {"input": "x", "additional_metadata": {"a": deep}}]
    found = importing.call("deepeval", importing.write("g.json", json.dumps(rows)))
    assert "more than 50 levels" in found.err


@pytest.mark.slow
def test_templates_in_goldens_stay_text(importing: Importing):
    asked = "What is {{ answer }}? {% for x in y %} {{ 7 * 7 }} `touch pwned` $(touch pwned)"
    row = {"input": asked, "expected_output": "{{ question }}"}
    found = importing.call("deepeval", importing.write("g.json", json.dumps([row])))
    importing.write("cases/it/g.demo.yaml", 'schema_version: 1\nanswers: {golden-1: "{{ question }}"}\n')
    assert "1 passed" in importing.run("--model", "demo")
    assert json.loads((found.folder / "g.jsonl").read_text())["question"] == asked
    [run] = (importing.project / "outputs" / "runs").rglob("run_1.json")
    assert json.loads(run.read_text())["trace"][0]["content"] == asked


def test_nothing_is_overwritten(importing: Importing):
    file = importing.write("cases/it/mine.yaml", "a: 1\n")
    found = importing.call("deepeval", FOREIGN / "goldens.json")
    assert found.code == 1
    assert "exists already, expected a new or empty folder" in found.err
    assert found.files == ["mine.yaml"]
    assert file.read_text() == "a: 1\n"


def test_an_empty_folder_stays_the_one_it_is(importing: Importing):
    folder = importing.project / "cases" / "it"
    folder.mkdir(parents=True)
    before = folder.stat().st_ino
    found = importing.call("deepeval", FOREIGN / "goldens.json")
    assert folder.stat().st_ino == before
    assert found.files[0] == "golden-2/test.yaml"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


class _Interrupted(dict[str, bytes]):
    """Files that are being written when somebody presses Ctrl-C."""

    def items(self) -> NoReturn:
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_there", [False, True])
def test_an_interrupted_import_leaves_nothing(tmp_path: Path, is_there: bool):
    folder = tmp_path / "it"
    if is_there:
        folder.mkdir()
    asked = ({"role": "user", "content": "Why?"},)
    drafts = [Draft(Place("g.json"), name, asked, files=files) for name, files in (("a", {}), ("b", _Interrupted()))]
    with pytest.raises(KeyboardInterrupt):
        write_drafts(FileContents(drafts), folder, "it")
    assert list(tmp_path.rglob("*")) == [folder] * is_there


@pytest.mark.slow
def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path):
    asked = ({"role": "user", "content": "Why? " * 100_000},)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(ConfigError, match="it: cannot be written: File too large"):
            write_drafts(FileContents([Draft(Place("g.json"), "a", asked)]), tmp_path / "it", "it")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_rows_on_one_line_are_distinguished_and_counted(importing: Importing):
    rows = [{"input": ""}, {"input": "x", "expected_output": "y"}, {"input": ""}]
    found = importing.call("deepeval", importing.write("g.json", "\n" + json.dumps(rows)))
    assert [line.split(" ")[0] for line in found.err.splitlines()] == ["g.json:2:2:", "g.json:2:57:"]
    assert "1 dataset row; 2 rows not imported" in found.out


def test_a_file_without_any_case_leaves_no_folder(importing: Importing):
    found = importing.call("deepeval", FOREIGN / "conversations.json")
    assert found.code == 1
    assert "found no row that can become a case" in found.err
    assert not found.folder.exists()


def test_ids_are_kept_apart(importing: Importing):
    rows = [
        {"input": f"{at}?", "expected_output": "a", "name": name}
        for at, name in enumerate(["A b", "a-b", "???", "a b"])
    ]
    found = importing.call("deepeval", importing.write("g.json", json.dumps(rows)))
    ids = [json.loads(line)["id"] for line in (found.folder / "g.jsonl").read_text().splitlines()]
    assert ids[:2] == ["a-b", "a-b-2"]
    assert ids[3] == "a-b-3"
    assert len(set(ids)) == 4


def test_terminal_codes_of_the_file_are_not_printed(importing: Importing):
    rows = [
        {"input": "Say yes.", "expected_output": "yes"},
        {"input": "x", "expected_tools": [{"name": "\x1b[31mred\u202e"}]},
    ]
    found = importing.call("deepeval", importing.write("g.json", json.dumps(rows)))
    assert "\x1b" not in found.err + found.out
    assert "\u202e" not in found.err
    assert "red" in found.err


CALLED = {"name": "lookup", "inputParameters": {"q": "x"}, "output": {"height": 8849}}


def tool_golden(**fields: object) -> dict[str, object]:
    return {"input": "How high?", "actual_output": "8849 m", "expected_tools": [{"name": "lookup"}], **fields}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_tool_checks_are_decided_by_the_tools_that_were_called(importing: Importing, suffix: str):
    goldens = [
        tool_golden(name="right", expected_output="8849 m", tools_called=[CALLED]),
        tool_golden(name="wrong-tool", expected_output="8849 m", tools_called=[{"name": "search"}]),
        tool_golden(name="wrong-answer", expected_output="8848 m", tools_called=[CALLED]),
        tool_golden(name="row", tools_called=[CALLED]),
        tool_golden(name="too-few", expected_tools=[{"name": "lookup"}] * 2, tools_called=[CALLED]),
    ]
    content = json.dumps(goldens)
    if suffix == ".csv":
        names = ["name", "input", "actual_output", "expected_output", "expected_tools", "tools_called"]
        rows = [[each.get(key, "") for key in names] for each in goldens]
        table = io.StringIO()
        csv.writer(table).writerows(
            [names, *([x if isinstance(x, str) else json.dumps(x) for x in row] for row in rows)]
        )
        content = table.getvalue()
    found = importing.call("deepeval", importing.write(f"g{suffix}", content))
    assert found.code == 0
    # The command that the import prints, word for word.
    command = shlex.split(
        found.out.splitlines()[-1].partition(": ")[2].replace("cases/", f"{importing.project}/cases/")
    )
    assert command[0] == "pytest"
    importing.run(*command[2:])
    report = json.loads((importing.project / "outputs" / "report.json").read_text())
    outcomes = {run["case_id"].rpartition("/")[2].removeprefix("g-"): run["outcome"] for run in report["runs"]}
    assert outcomes == {
        "right": "passed",
        "wrong-tool": "failed",
        "wrong-answer": "failed",
        "checked.row": "passed",
        "checked.too-few": "failed",
    }


@pytest.mark.parametrize(
    ("called", "prediction"),
    [
        ([CALLED], [{"name": "lookup", "arguments": {"q": "x"}, "result": '{"height": 8849}'}]),
        (
            [{"name": "lookup", "input_parameters": None, "output": "8849"}],
            [{"name": "lookup", "arguments": {}, "result": "8849"}],
        ),
        ([{"name": "lookup", "inputParameters": [1]}], [{"name": "lookup", "arguments": {"input": [1]}}]),
        ([], []),
    ],
)
def test_called_tools_become_calls_of_the_prediction(importing: Importing, called: object, prediction: object):
    found = importing.call("deepeval", importing.write("g.json", json.dumps([tool_golden(tools_called=called)])))
    row = json.loads((found.folder / "predictions.jsonl").read_text())
    assert row["prediction"] == {"output": "8849 m", "tool_calls": prediction}


def test_an_answer_with_unknown_tool_calls_is_not_scored(importing: Importing):
    found = importing.call("deepeval", importing.write("g.json", json.dumps([tool_golden()])))
    assert "g.json:1:2: actual_output: not scored: expected_tools need tools_called" in found.err
    assert "to score" not in found.out
    assert "predictions.jsonl" not in found.files


def test_tools_of_a_table_may_be_names_between_semicolons(importing: Importing):
    table = "input,actual_output,expected_tools,tools_called\nHow high?,8849 m,lookup; search,lookup;search;lookup\n"
    found = importing.call("deepeval", importing.write("g.csv", table))
    checks = [check["declarative"]["name"] for check in found.case("golden-1")["deterministic_checks"]]
    assert checks == ["lookup", "search"]
    row = json.loads((found.folder / "predictions.jsonl").read_text())
    assert [call["name"] for call in row["prediction"]["tool_calls"]] == ["lookup", "search", "lookup"]


@pytest.mark.parametrize("tools", [[{"name": ""}], [1], {"name": "x"}, [{"names": "x"}]])
@pytest.mark.parametrize("field", ["expected_tools", "tools_called"])
def test_tools_without_a_name_are_refused(importing: Importing, field: str, tools: object):
    found = importing.call("deepeval", importing.write("g.json", json.dumps([tool_golden(**{field: tools})])))
    assert found.code == 1
    assert f"{field}: expected a list of objects with a name" in found.err
