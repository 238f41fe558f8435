"""`agentbench research race` from the command line, with a judge on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from support.race_files import PROMPTS, WEIGHTS, criteria, lay_out, reports, row, write
from support.race_judge import RaceJudge

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS

LABELS = ["Comprehensiveness", "Insight", "Instruction Following", "Readability", "Overall Score"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lay_out()
    return tmp_path


def read(name: str, model: str = "gpt") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"results/race/{model}/{name}").read_text().splitlines()]


def means(folder: Path | str = "results/race/gpt") -> list[str]:
    lines = dict(line.split(": ") for line in Path(folder, "race_result.txt").read_text().splitlines())
    assert list(lines) == LABELS
    return list(lines.values())


def race(*options: str, model: str | None = "gpt") -> int:
    return main(["research", "race", *([] if model is None else [model]), *options])


def test_reports_are_compared_with_references(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    assert race() == 0
    shares = [6 / 10, 4 / 8, 1 / 5]
    assert means() == [f"{sum(shares) / 3:.4f}"] * 5
    rows = read("raw_results.jsonl")
    assert [each["id"] for each in rows] == [1, 2, 3]
    scores = [*RACE_DIMENSIONS, "overall_score", "race_weighted_dims"]
    assert list(rows[0]) == ["id", "prompt", *scores, "article_digest"]
    assert [each["overall_score"] for each in rows] == pytest.approx(shares)
    [draw] = read("race_details.jsonl")[0]["draws"]
    reply = {"criterion": "Breadth", "analysis": "Read.", "article_1_score": 6, "article_2_score": 4}
    assert draw["judge_details"]["insight"][0] == reply
    out, err = capsys.readouterr()
    assert err == ""
    assert "Overall Score (zh, 1 of 3): 0.5000" in out
    assert out.splitlines()[8].split() == ["race", "3", "3", "0"]
    shown = [shown for _, shown in judge.shown]
    assert {each["article 2"] for each in shown} == {"A reference of quality 4."}
    assert [("JSON对象" in each["task"]) for each in sorted(shown, key=lambda each: each["query"])] == [
        False,
        False,
        True,
    ]
    assert "0.7" not in shown[0]["criteria"]


def test_a_second_call_asks_nothing_and_a_changed_article_is_asked_about_alone(judge: RaceJudge) -> None:
    assert race() == 0
    first = Path("results/race/gpt/raw_results.jsonl").read_bytes()
    assert race() == 0
    assert len(judge.requests) == 3
    assert Path("results/race/gpt/raw_results.jsonl").read_bytes() == first
    rows = [json.loads(line) for line in Path(reports()).read_text().splitlines()]
    write(reports(), {**rows[0], "article": "An article of quality 8."}, *rows[1:])
    assert race() == 0
    assert len(judge.requests) == 4
    assert read("raw_results.jsonl")[0]["overall_score"] == pytest.approx(8 / 12)


def test_weights_may_change_without_asking(judge: RaceJudge) -> None:
    def said(reply: Any, shown: dict[str, str], before: int) -> Any:
        return {**reply, "insight": [{**each, "article_1_score": 0} for each in reply["insight"]]}

    judge.says["race"] = said
    assert race("--limit", "1") == 0
    assert read("raw_results.jsonl")[0]["overall_score"] == pytest.approx(0.7 * 6 / (0.7 * 6 + 4))
    config = {"query_selection": {"enable_dynamic_weighting": False}, "race_weights": dict.fromkeys(WEIGHTS, 0.25)}
    Path("config.json").write_text(json.dumps(config))
    assert race("--limit", "1", "--config", "config.json") == 0
    assert read("raw_results.jsonl")[0]["overall_score"] == pytest.approx(0.75 * 6 / (0.75 * 6 + 4))
    assert len(judge.requests) == 1


def test_reports_are_judged_alone(judge: RaceJudge) -> None:
    Path("data/reference/reference.jsonl").unlink()
    assert race("--pointwise") == 0
    assert means() == [f"{(0.6 + 0.4 + 0.1) / 3:.4f}"] * 5
    assert "target_score" in read("race_details.jsonl")[0]["draws"][0]["judge_details"]["insight"][0]


def test_both_orders_and_several_samples(judge: RaceJudge) -> None:
    def favours_the_first(reply: Any, shown: dict[str, str], before: int) -> Any:
        entries = {name: [{**each, "article_1_score": 9} for each in said] for name, said in reply.items()}
        return reply if before else entries

    judge.says["race"] = favours_the_first
    assert race("--limit", "1", "--position-swap", "--samples", "2") == 0
    [document] = read("raw_results.jsonl")
    draws = [each["overall_score"] for each in read("race_details.jsonl")[0]["draws"]]
    assert sorted(draws) == pytest.approx(sorted([9 / 13, 6 / 15, 6 / 10, 6 / 10]))
    assert document["overall_score"] == pytest.approx(mean(draws))
    assert document["race_sd"] == pytest.approx(stdev([mean(draws[:2]), mean(draws[2:])]))  # each in both orders
    assert len(judge.requests) == 4


def test_articles_are_cleaned_unless_cleaning_is_skipped(judge: RaceJudge) -> None:
    assert race("--limit", "1", "--skip-cleaning") == 0
    assert judge.shown[-1][1]["article 1"] == "An article [1] of quality 6."
    assert race("--limit", "1", "--model-cleaning") == 0
    assert judge.asked == {"race": 2, "clean": 2}
    assert judge.shown[-1][1]["article 1"] == "An article of quality 6."
    assert race("--limit", "1", "--model-cleaning") == 0
    assert judge.asked == {"race": 2, "clean": 2}


def renamed(reply: Any) -> Any:
    return {**reply, "insight": [{**each, "criterion": each["criterion"][:5]} for each in reply["insight"]]}


def left_out(reply: Any) -> Any:
    return {**reply, "insight": reply["insight"][:1]}


def as_texts(reply: Any) -> Any:
    return {**reply, "insight": [{**each, "article_1_score": "6"} for each in reply["insight"]]}


def cut(reply: Any) -> Any:
    return json.dumps(reply)[:-40]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (renamed, "not asked for: 'Bread'"),
        (left_out, "not scored: 'Depth (in full)'"),
        (as_texts, 'insight.0.article_1_score: found "6"'),
        (lambda reply: {**reply, "insight": reply["insight"] * 2}, "scored more than once: 'Breadth'"),
        (lambda reply: {name: reply[name] for name in ("insight", "readability")}, "comprehensiveness"),
        (lambda reply: "8/10, a fine article", "JSON"),
        (cut, "JSON"),
    ],
)
def test_a_malformed_reply_is_requested_again_with_its_problems(judge: RaceJudge, wrong: Any, reason: str) -> None:
    judge.says["race"] = lambda reply, shown, before: wrong(reply) if before == 0 else reply
    assert race("--only-zh") == 0
    assert len(judge.requests) == 2
    assert reason in judge.requests[1].body["messages"][-1]["content"]
    assert read("raw_results.jsonl")[0]["overall_score"] == 0.5


@pytest.mark.slow
def test_a_judge_that_never_keeps_the_form(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    judge.says["race"] = lambda reply, shown, before: left_out(reply)
    assert race("--limit", "1") == 1
    [failed] = read("raw_results.jsonl")
    assert set(failed) == {"id", "prompt", "race_error"}
    assert "no verdict in 3 replies" in failed["race_error"]
    assert "not scored: 'Depth (in full)'" in failed["race_error"]
    assert means() == ["null"] * 5
    assert "race: 1: no verdict in 3 replies" in capsys.readouterr().err
    judge.says.clear()
    assert race("--limit", "1") == 0
    assert len(judge.requests) == 3 + 1


def test_case_and_blanks_of_a_criterion_do_not_matter(judge: RaceJudge) -> None:
    def said(reply: Any, shown: dict[str, str], before: int) -> Any:
        return {
            name: [{**each, "criterion": each["criterion"].upper() + " "} for each in reply[name]] for name in reply
        }

    judge.says["race"] = said
    assert race() == 0
    assert len(judge.requests) == 3
    details = read("race_details.jsonl")[0]["draws"][0]["judge_details"]["insight"]
    assert [each["criterion"] for each in details] == ["Breadth", "Depth (in full)"]


def test_compat_takes_criteria_as_the_original_does(judge: RaceJudge) -> None:
    judge.says["race"] = lambda reply, shown, before: renamed(left_out(reply))
    assert race("--compat", "--limit", "1") == 0
    assert read("raw_results.jsonl")[0]["overall_score"] == pytest.approx(0.6)
    assert len(judge.requests) == 1


@pytest.mark.slow
def test_a_reply_at_the_limit_of_tokens_is_not_asked_for_again(judge: RaceJudge) -> None:
    judge.says["race"] = lambda reply, shown, before: {"content": cut(reply), "finish_reason": "length"}
    assert race("--limit", "1") == 1
    assert "limit of tokens" in read("raw_results.jsonl")[0]["race_error"]
    assert len(judge.requests) == 1


def test_rows_that_are_lost_are_named_and_counted(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        reports(),
        row(1, "An article of quality 6."),
        "{broken",
        row(1, "An article of quality 9.", prompt="Another question?"),
        row(4, "An article of quality 9.", prompt=PROMPTS[1]),
        {"id": 5, "prompt": "No article?"},
        row(2, "  "),
        row("3", "An article of quality 4.", prompt=f" {PROMPTS[3]}  "),
        row(6, "An article of quality 4."),
    )
    assert race() == 1
    rows = read("raw_results.jsonl")
    assert [each.get("id") for each in rows] == [1, None, 1, 4, 5, 2, "3", 6]
    errors = [each.get("race_error", "") for each in rows]
    path = reports()
    assert errors[0] == ""
    assert errors[1].startswith(f"{path}:2:2: ")
    assert errors[2] == f"{path}:3:1: id: found 1 again, first on line 1"
    assert errors[3].startswith(f"{path}:4:1: prompt: repeats line 1")
    assert errors[4].startswith(f"{path}:5:1: article: ")
    assert errors[5] == "the article is empty"
    assert errors[6] == ""
    assert "query.jsonl: found no row with the prompt of 6 ('Question 6?')" in errors[7]
    out, err = capsys.readouterr()
    assert out.splitlines()[6].split() == ["race", "8", "2", "6"]
    assert all(str(error) in err for error in errors)
    assert means() == [f"{(0.6 + 0.5) / 2:.4f}"] * 5


def test_partners_that_are_missing_or_differ(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = criteria(2, dimension_weight={"insight": 1.0})
    write("data/criteria_data/criteria.jsonl", criteria(1), lacking, {"id": 3, "criteria_error": "the judge was away"})
    write("data/reference/reference.jsonl", row(11, "of quality 4", prompt=PROMPTS[1]), row(2, "x"), row(2, "x"))
    write(reports(), row(1, "An article of quality 6."), row(2, "An article of quality 6."))
    assert race() == 1
    first, second = (each["race_error"] for each in read("raw_results.jsonl"))
    assert first.startswith(
        "data/reference/reference.jsonl:1:1: id: found 11 for the prompt that has the id 1 elsewhere"
    )
    assert "dimension_weight.comprehensiveness: found nothing, expected a weight" in second
    err = capsys.readouterr().err
    assert "data/criteria_data/criteria.jsonl:3:1: the judge was away" in err
    assert "reference.jsonl:3:1: prompt: repeats line 2" in err
    assert "data/test_data/raw_data/gpt.jsonl: found no report of these queries: 3" in err
    assert judge.requests == []


def test_languages_and_limits(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    assert race("--only_zh") == 0
    assert [each["id"] for each in read("raw_results.jsonl")] == [2]
    assert capsys.readouterr().err == ""
    assert race("--only_en", "--limit", "1") == 0
    assert [each["id"] for each in read("raw_results.jsonl")] == [1]
    Path("config.json").write_text(json.dumps({"evaluation_settings": {"language_support": ["en"]}}))
    assert race("--config", "config.json") == 0
    assert [each["id"] for each in read("raw_results.jsonl")] == [1, 3]
    assert "1 skipped, as language_support lacks their language: 2 (zh)" in capsys.readouterr().err


def test_the_language_is_that_of_the_query(judge: RaceJudge) -> None:
    write("data/prompt_data/query.jsonl", {"id": 1, "prompt": PROMPTS[1], "language": "zh"})
    assert race("--only-zh", "--limit", "1") == 0
    assert "JSON对象" in judge.shown[0][1]["task"]


def test_scores_that_are_stored(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    write("data/criteria_data/criteria.jsonl", criteria(1), criteria(2))
    assert race() == 1
    asked, before = len(judge.requests), means()
    capsys.readouterr()
    stored = Path("results/race/gpt/raw_results.jsonl")
    assert race("--raw_results", str(stored), "--output_dir", "again", model=None) == 1
    assert means("again") == before == ["0.5500"] * 5
    out, err = capsys.readouterr()
    assert "race: 3: data/criteria_data/criteria.jsonl: found no row with the prompt of 3" in err
    assert out.splitlines()[-3].split() == ["race", "3", "2", "1"]
    assert len(judge.requests) == asked
    with stored.open("a") as file:
        file.write('{"id": 9, "prompt": "x", "insight": 0.5}\n{"id": 10, "prompt": "y", "overall_score": 7}\n')
    assert race("--raw_results", str(stored), "--output_dir", "again", model=None) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-3].split() == ["race", "5", "2", "3"]
    assert "expected the scores, or race_error" in err
    assert f"{stored}:5:" in err


def test_nothing_to_share(judge: RaceJudge) -> None:
    write(reports(), row(1, "An article of quality 0."))
    write("data/reference/reference.jsonl", row(1, "A reference of quality 0."))
    assert race() == 1
    assert "0 points both" in read("raw_results.jsonl")[0]["race_error"]


def test_the_budget(judge: RaceJudge) -> None:
    prices = "prices: {input_per_1m: 1000, output_per_1m: 1000}"
    model = f"{{model_id: paid, base_url: '{judge.base_url}', api_key_env: none, {prices}}}"
    Path("models.yaml").write_text(f"schema_version: 1\nmodels: [{model}]\n")
    assert race("--judge", "paid", "--max-cost", "0.02", "--max-workers", "1") == 1
    assert len(judge.requests) == 2
    assert "the budget is used up" in read("raw_results.jsonl")[2]["race_error"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "found no model"),
        (("--raw-results", "x.jsonl"), "needs --output-dir"),
        (("gpt", "--pointwise", "--reference-file", "x"), "leave out --reference-file"),
        (("gpt", "--pointwise", "--position-swap"), "leave out --position-swap"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert race(*options, model=None) == 2
    assert said in capsys.readouterr().err


def test_files_that_are_not_there(judge: RaceJudge, capsys: pytest.CaptureFixture[str]) -> None:
    assert race(model="nobody") == 1
    assert "data/test_data/raw_data/nobody.jsonl: cannot be read" in capsys.readouterr().err
    assert race("--criteria_file", "none.jsonl") == 1
    assert "none.jsonl: cannot be read" in capsys.readouterr().err
    write(reports("empty"))
    assert race(model="empty") == 1
    assert "found no row" in capsys.readouterr().err


def test_a_scripted_judge(folder: Path) -> None:
    entries = [
        {"criterion": name, "analysis": "x", "article_1_score": 3, "article_2_score": 1}
        for name in ("Breadth", "Depth (in full)")
    ]
    script = {"schema_version": 1, "research": {"race": dict.fromkeys(RACE_DIMENSIONS, entries)}}
    Path("data/test_data/raw_data/gpt.demo.yaml").write_text(json.dumps(script))
    assert race("--judge", "demo") == 0
    assert means() == ["0.7500"] * 5
    swapped = [{**each, "article_1_score": 1, "article_2_score": 4} for each in entries]
    script["research"] = {"race": [dict.fromkeys(RACE_DIMENSIONS, each) for each in (entries, swapped)]}
    Path("data/test_data/raw_data/gpt.demo.yaml").write_text(json.dumps(script))
    assert race("--judge", "demo", "--position-swap") == 0
    assert means() == [f"{(3 / 4 + 4 / 5) / 2:.4f}"] * 5


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_reuses_the_replies_of_a_stopped_process(judge: RaceJudge, sent: signal.Signals) -> None:
    waiting = threading.Event()

    def choose(message: str, nth: int) -> str:
        if "coffee" in message and not waiting.is_set():
            waiting.set()
            return "hang"
        return "ok"

    judge.choose = choose
    command = [sys.executable, "-m", "pytest_agentbench.cli", "research", "race", "gpt", "--max-workers", "1"]
    environ = {**os.environ, **judge.environ}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert waiting.wait(60)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    if sent == signal.SIGINT:
        assert process.returncode == 130, err
        assert "1 not reached" in out
        assert "repeat the command to continue" in err
        assert [each["id"] for each in read("raw_results.jsonl")] == [1, 2]
        assert means() == ["0.5500"] * 5
    else:
        assert list(Path("results/race/gpt").iterdir()) == []
    assert race() == 0
    assert len(judge.requests) == 3 + 1
    assert len(read("raw_results.jsonl")) == 3
