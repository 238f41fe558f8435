"""`<name>.demo.yaml` beside a dataset or a file of MCP tasks: lists of replies, and judges of single items."""

from __future__ import annotations

import json

import pytest

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.models.scripts import NoScript, Scripts
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import open_source

SCRIPT = """
schema_version: 1
answers:
  maps_000:
    - {matches: "^Round 1", content: plan}
    - {matches: "^Round 2", steps: [{content: stop}]}
    - {content: answer}
  maps_001: word
default:
  - {matches: "^Round", content: nothing to plan}
  - {content: nothing to say}
judge: {overall: 5}
judges:
  maps_001: {overall: 9}
  maps_002: [{overall: 1}, {overall: 2}]
"""
IDS = [f"maps_00{n}" for n in range(4)]


def tasks(folder):
    entries = [
        {"task_id": name, "servers": ["A"], "task_description": f"Detailed {name}", "fuzzy_description": name}
        for name in IDS
    ]
    (folder / "maps.json").write_text(json.dumps(entries))


def rows(folder):
    (folder / "maps.jsonl").write_text("".join(json.dumps({"id": name, "question": name}) + "\n" for name in IDS))


def cases_of(path):
    rows = list(open_source(path, SourceRequest(ConfigRoot(path.parent))).rows())
    assert all(isinstance(row, SourceCase) for row in rows)
    return [row.make() for row in rows]


@pytest.fixture(params=[(tasks, "maps.json", ""), (rows, "maps.jsonl", "maps.")], ids=["tasks", "dataset"])
def scripted(request, tmp_path):
    """Scripts that know the items, and what their case ids begin with."""
    make, name, prefix = request.param
    make(tmp_path)
    (tmp_path / "maps.demo.yaml").write_text(SCRIPT)
    scripts = Scripts()
    for case in cases_of(tmp_path / name):
        scripts.load_beside(case)
    return scripts, prefix


def said(scripts, case_id, message):
    messages = [{"role": "user", "content": message}]
    return scripts.find(case_id, messages).step(messages, offers_tools=False).content


def test_replies_of_an_item_are_chosen_by_the_message(scripted):
    scripts, prefix = scripted
    rounds = ("Round 1 of 20", "Round 2 of 20", "Write the answer")
    assert [said(scripts, f"{prefix}maps_000", text) for text in rounds] == ["plan", "stop", "answer"]
    assert [said(scripts, f"{prefix}maps_001", text) for text in rounds] == ["word"] * 3
    assert [said(scripts, f"{prefix}maps_002", text) for text in rounds] == ["nothing to plan"] * 2 + ["nothing to say"]


def test_a_judge_may_say_something_else_of_single_items(scripted):
    scripts, prefix = scripted
    scores = {name: scripts.verdict(f"{prefix}{name}", [], 1).overall for name in IDS}
    assert scores == {"maps_000": 5, "maps_001": 9, "maps_002": 1, "maps_003": 5}
    assert scripts.verdict(f"{prefix}maps_002", [], 2).overall == 2
    with pytest.raises(NoScript, match="the judge has 2 verdicts and this is iteration 3"):
        scripts.verdict(f"{prefix}maps_002", [], 3)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("{a: []}", "2:14: answers.a: found none, expected at least one reply"),
        ("{a: [5]}", "2:15: answers.a[0]: found 5, expected a mapping"),
        ("{a: {content: x, step: []}}", "2:27: answers.a.step: unknown field"),
        ("{a: [{when: x}]}", "2:15: answers.a[0]: needs either 'content' or 'steps'"),
    ],
)
def test_one_mistake_in_an_answer_is_one_problem(tmp_path, answers, expected):
    tasks(tmp_path)
    script = tmp_path / "maps.demo.yaml"
    script.write_text(f"schema_version: 1\nanswers: {answers}\n")
    case = cases_of(tmp_path / "maps.json")[0]
    with pytest.raises(ConfigError) as raised:
        Scripts().load_beside(case)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{script}:{expected}")


def test_a_served_tree_finds_a_task_by_either_of_its_texts(tmp_path):
    tasks(tmp_path)
    (tmp_path / "maps.demo.yaml").write_text(SCRIPT)
    scripts = ScriptTree(tmp_path)
    assert scripts.problems == []
    assert [said(scripts, None, text) for text in ("maps_001", "Detailed maps_001")] == ["word", "word"]
    assert said(scripts, "maps_000", "Round 1") == "plan"
