"""`agentbench research criteria` from the command line, with a judge on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.race_files import write
from support.race_judge import RaceJudge

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

QUERIES = [{"id": 1, "prompt": "What is tea?"}, {"id": 2, "prompt": "中国的茶叶市场有多大？"}]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RaceJudge]:
    monkeypatch.chdir(tmp_path)
    with RaceJudge() as found:
        found.judge_for(monkeypatch)
        yield found


def criteria(*options: str) -> int:
    return main(["research", "criteria", *options])


def read(path: Path | str) -> list[dict[str, Any]]:
    return read_text(Path(path).read_text(encoding="utf-8"))


def read_text(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_criteria_of_queries(judge: RaceJudge) -> None:
    write("data/prompt_data/query.jsonl", *QUERIES)
    drawn = iter((0.5, 0.5, 0.4, 0.4, 0.3))

    def weights(reply: Any, shown: dict[str, str], before: int) -> Any:
        insight = next(drawn) if "tea" in shown["query"] else 0.3
        rest = (1 - insight) / 3
        return {"weights": {**dict.fromkeys(RACE_DIMENSIONS, rest), "insight": insight}}

    judge.says["weights"] = weights
    assert criteria() == 0
    first, second = read("data/criteria_data/criteria.jsonl")
    assert list(first) == ["id", "prompt", "dimension_weight", "criterions"]
    assert first["dimension_weight"]["insight"] == pytest.approx(0.42)
    for row in (first, second):
        assert sum(row["dimension_weight"].values()) == pytest.approx(1, abs=1e-12)
        assert list(row["criterions"]) == list(RACE_DIMENSIONS)
        for entries in row["criterions"].values():
            assert sum(each["weight"] for each in entries) == pytest.approx(1, abs=1e-6)
    assert [entries[0]["criterion"] for entries in first["criterions"].values()] == [
        "Comprehensiveness, first",
        "Insight, first",
        "Instruction following, first",
        "Readability, first",
    ]
    assert second["criterions"]["insight"][0]["criterion"] == "洞察力, first"
    assert judge.asked == {"weights": 10, "criteria": 8}
    assert criteria() == 0
    assert sum(judge.asked.values()) == 18


def test_weights_of_the_configuration_are_not_asked_for(judge: RaceJudge) -> None:
    write("data/prompt_data/query.jsonl", *QUERIES)
    Path("config.json").write_text('{"query_selection": {"enable_dynamic_weighting": false}}')
    assert criteria("--config", "config.json", "--output_file", "criteria.jsonl", "--only_en") == 0
    [row] = read("criteria.jsonl")
    seed = {"comprehensiveness": 0.25, "insight": 0.35, "instruction_following": 0.25, "readability": 0.15}
    assert row["dimension_weight"] == seed
    assert judge.asked == {"criteria": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "changed", "reason"),
    [
        ("criteria", lambda reply: {"criteria": reply["criteria"][:1] * 2}, "twice"),
        ("criteria", lambda reply: {"criteria": [{**each, "weight": 0.4} for each in reply["criteria"]]}, "sum to 0.8"),
        ("criteria", lambda reply: {"criteria": [{**each, "weight": "0.5"} for each in reply["criteria"]]}, "weight"),
        ("criteria", lambda reply: {"criteria": [{**reply["criteria"][0], "weight": 1}]}, "found 1, expected 2 to 15"),
        ("weights", lambda reply: {"weights": {**reply["weights"], "insight": 0.9}}, "sum of 1.6"),
        ("weights", lambda reply: {"weights": {"insight": 1.0}}, "comprehensiveness: missing"),
    ],
)
def test_criteria_that_do_not_add_up_are_asked_for_again(
    judge: RaceJudge, stage: str, changed: Any, reason: str
) -> None:
    write("data/prompt_data/query.jsonl", QUERIES[0])
    judge.says[stage] = lambda reply, shown, before: reply if before else changed(reply)
    assert criteria() == 0
    again = [each.body["messages"][-1]["content"] for each in judge.requests if len(each.body["messages"]) > 2]
    assert again
    assert all(reason in text for text in again)


@pytest.mark.slow
def test_a_query_without_criteria_is_named_and_only_missing_replies_are_requested_again(
    judge: RaceJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write("data/prompt_data/query.jsonl", *QUERIES, {"id": 3}, {"id": 4, "prompt": "What is  tea?"})
    judge.says["criteria"] = lambda reply, shown, before: "no" if "洞察力" in shown["task"] else reply
    assert criteria() == 1
    rows = read("data/criteria_data/criteria.jsonl")
    assert [each.get("id") for each in rows] == [1, 2, 3, 4]
    errors = [each.get("criteria_error", "") for each in rows]
    assert errors[0] == ""
    assert "no verdict in 3 replies" in errors[1]
    assert "query.jsonl:3:1: prompt: " in errors[2]
    assert "prompt: repeats line 1" in errors[3]
    assert capsys.readouterr().out.splitlines()[1].split() == ["criteria", "4", "1", "3"]
    judge.says.clear()
    before = sum(judge.asked.values())
    assert criteria("--limit", "2") == 0
    assert sum(judge.asked.values()) == before + 1


def test_criteria_of_other_queries_stay(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("data/criteria_data/criteria.jsonl")
    write("data/prompt_data/query.jsonl", *QUERIES, {"id": 3, "prompt": "What is milk?"})
    assert criteria() == 0
    whole = path.read_text(encoding="utf-8")
    assert criteria("--limit", "2") == 0
    assert criteria("--only-zh") == 0
    assert sorted(path.read_text(encoding="utf-8").splitlines()) == sorted(whole.splitlines())
    assert "criteria.jsonl: 2 rows of other queries stay" in capsys.readouterr().err
    assert criteria() == 0
    assert path.read_text(encoding="utf-8") == whole
    assert capsys.readouterr().err == ""
    write("data/prompt_data/query.jsonl", {"id": 1, "prompt": "What is white tea?"})
    assert criteria() == 0
    assert [each["prompt"] for each in read(path)] == [
        "What is white tea?",
        *(each["prompt"] for each in read_text(whole)),
    ]


def test_criteria_go_only_where_there_are_new_ones(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("data/criteria_data/criteria.jsonl")
    write("data/prompt_data/query.jsonl", *QUERIES)
    assert criteria() == 0
    capsys.readouterr()
    own, other = read(path)
    own["dimension_weight"] = dict.fromkeys(RACE_DIMENSIONS, 0.25)
    write(str(path), own, other)
    asked = sum(judge.asked.values())
    assert criteria("--judge", "another") == 0  # what was made by hand, or by another judge, stays
    assert (read(path), sum(judge.asked.values())) == ([own, other], asked)
    capsys.readouterr()
    judge.choose = lambda message, nth: "401"
    assert criteria("--judge", "another", "--regenerate") == 1
    assert read(path) == [own, other]
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split() == ["criteria", "2", "0", "2"]
    assert "criteria: 1: " in err
    judge.choose = lambda message, nth: "ok"
    assert criteria("--limit", "1", "--regenerate") == 0
    assert read(path)[0]["dimension_weight"]["comprehensiveness"] == pytest.approx(0.4)
    assert "criteria that were there before are replaced: 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[]", "found one JSON list, expected JSONL"), ("é".encode("latin-1"), "found text that is not UTF-8 (byte 0)")],
)
def test_a_file_to_which_no_criteria_can_be_added(
    judge: RaceJudge, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("data/prompt_data/query.jsonl", *QUERIES)
    Path("criteria.jsonl").write_bytes(content)
    assert criteria("--output_file", "criteria.jsonl") == 1
    assert f"criteria.jsonl:1:1: {said}" in capsys.readouterr().err
    assert Path("criteria.jsonl").read_bytes() == content
    assert judge.requests == []


@pytest.mark.parametrize("name", ["loop.jsonl", f"{'x' * 300}.jsonl"])
def test_a_file_that_cannot_be_read_is_refused_before_the_judge_is_asked(
    judge: RaceJudge, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("data/prompt_data/query.jsonl", *QUERIES)
    Path("loop.jsonl").symlink_to("loop.jsonl")
    assert criteria("--output_file", name) == 1
    assert f"{name}:1:1: cannot be read" in capsys.readouterr().err
    assert judge.requests == []
