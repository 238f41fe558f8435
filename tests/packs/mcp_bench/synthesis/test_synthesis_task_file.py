"""The task file keeps the content of others, and a file of another form is never written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.mcp_bench.synthesis.base import Combination, Generated
from pytest_agentbench.packs.mcp_bench.synthesis.task_file import TaskFile

TIME = Combination(name="Single Server: Time", servers=("Time",))
TASK = Generated(task_description="Time:get_current_time", dependency_analysis="alone")


def add(file: TaskFile, task_id: str, combination: Combination = TIME) -> None:
    file.add(combination, task_id, TASK, f"what about {task_id}?", ["Weather"])


def ids(path: Path) -> list[str]:
    groups = json.loads(path.read_text(encoding="utf-8"))["server_tasks"]
    return [task["task_id"] for group in groups for task in group["tasks"]]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"name": "my-app", "dependencies": {}}',
        '{"server_tasks": {}}',
        '{"server_tasks": [{"server_name": "Time", "tasks": []}]}',
        '{"combinations": [{"servers": ["Time"], "generated_tasks": []}]}',
        '[{"task_id": "a", "servers": ["Time"], "fuzzy_description": "b"}]',
        '{"server_tasks": []',
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tasks\.json:1:\d+: "):
        TaskFile(path)


def test_a_folder_in_its_place_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").mkdir()
    with pytest.raises(ConfigError, match="found a folder, expected a file"):
        TaskFile(tmp_path / "tasks.json")


def test_tasks_and_keys_of_other_authors_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    others = {
        "author": "Ann",
        "server_tasks": [
            {"note": 1.0, "servers": ["Git"], "tasks": [{"fuzzy_description": "Who?", "task_id": "g", "level": None}]}
        ],
    }
    path.write_text(json.dumps(others), encoding="utf-8")
    add(TaskFile(path), "time_000")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["author"] == "Ann"
    assert json.dumps(document["server_tasks"][0]) == json.dumps(others["server_tasks"][0])
    assert ids(path) == ["g", "time_000"]
    assert document["total_tasks"] == 2


def test_manual_edits_between_additions_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    file = TaskFile(path)
    add(file, "time_000")
    add(file, "time_001")
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["server_tasks"][0]["tasks"][0]
    path.write_text(json.dumps({**document, "checked_by": "Ann"}), encoding="utf-8")
    add(file, "time_002")
    assert ids(path) == ["time_001", "time_002"]
    assert json.loads(path.read_text(encoding="utf-8"))["checked_by"] == "Ann"
    assert "time_000" not in file

    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tasks\.json"):
        add(file, "time_003")
    assert path.read_text(encoding="utf-8") == "[]"


def test_a_file_that_is_gone_meanwhile_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    file = TaskFile(path)
    add(file, "time_000")
    path.unlink()
    add(file, "time_001")
    assert ids(path) == ["time_000", "time_001"]
