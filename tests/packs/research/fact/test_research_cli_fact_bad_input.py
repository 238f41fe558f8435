from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.research_site import FactJudge, Site

from pytest_agentbench.cli import main

FILES = ("--raw_data_path", "reports.jsonl", "--output_dir", "out", "--allow_private", "127.0.0.1")
ERRORS = {"extract_error", "validate_error"}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site({"/tea": "Tea is a drink.", **{f"/{n}": f"Statement {n} holds." for n in range(25)}}) as found:
        yield found


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FactJudge]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    with FactJudge() as found:
        found.judge_for(monkeypatch)
        yield found


def report(number: int | str, article: Any, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": f"Question {number}?", "article": article, **fields}


def write(path: Path | str, *rows: Any) -> None:
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    Path(path).write_text(text, encoding="utf-8")


def read(path: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def said(path: Path | str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in Path(path).read_text(encoding="utf-8").splitlines())  # type: ignore[misc]


def fact(*arguments: str) -> int:
    return main(["research", "fact", *arguments])


def labels(row: dict[str, Any]) -> Counter[str]:
    return Counter(each["result"] for page in row["citations_deduped"].values() for each in page["validate_res"])


@pytest.mark.slow
def test_every_row_has_a_named_outcome_and_totals_add_up(
    site: Site, judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    many = "\n".join(f"- Statement {n} holds. [{n}] {site.url}/{n % 25}#{n}" for n in range(500))
    judge.says["extract"] = lambda reply, shown: "I cannot." if "Garbage" in shown else reply
    judge.says["validate"] = lambda reply, shown: (
        {"results": [{"idx": 0, "result": "perhaps"}]} if "Mislabelled" in shown else reply
    )
    write(
        "reports.jsonl",
        report("good", f"- Tea is a drink. {site.url}/tea"),
        report("none", "Nothing is cited."),
        report("empty", ""),
        report("good", "- The id of another report.", prompt="Another question?"),
        '{"id": "broken", "prompt": ',
        '["a list"]',
        {"id": "lost", "prompt": "Question lost?"},
        report("garbage", "Garbage. - A."),
        report("nowhere", "- A marker that points nowhere. [7]\n- No marker."),
        report("many", many),
        report("mixed", f"- 茶是饮料。 {site.url}/tea\n- Tea is a drink. {site.url}/tea", prompt="茶 and tea?"),
        report("unfit", "- A. http://127.9.9.9/\n- B. http://127.0.0.1:1/\n- C. http://[::1\n- D. http://x:y/"),
        report("mislabelled", f"- Mislabelled. {site.url}/tea\n- Statement 1 holds. {site.url}/1"),
        report(8, f"- Tea is a drink. {site.url}/tea", execution_metrics={"total_duration_seconds": -1}),
    )
    assert fact(*FILES) == 1
    rows = read("out/validated.jsonl")
    assert len(rows) == 14
    scored = {row["id"]: labels(row) for row in rows if "extract_error" not in row and "validate_error" not in row}
    assert scored == {
        "good": {"supported": 1},
        "none": {},
        "empty": {},
        "nowhere": {"unknown": 2},
        "many": {"supported": 25, "unsupported": 475},
        "mixed": {"supported": 1, "unsupported": 1},
        "unfit": {"unknown": 4},
    }
    failed = {n: row.get("extract_error") or row["validate_error"] for n, row in enumerate(rows, 1) if {*row} & ERRORS}
    assert list(failed) == [4, 5, 6, 7, 8, 13, 14]
    expected = (
        "reports.jsonl:4:1: id: found 'good' again, first on line 1",
        "reports.jsonl:5:27: not valid JSON",
        "reports.jsonl:6:1: found a list, expected an object",
        "reports.jsonl:7:1: article: missing; add it",
        "no verdict in 3 replies",
        "1 of 2 pages could not be compared",
        "reports.jsonl:14:",
    )
    assert all(text in reason for text, reason in zip(expected, failed.values(), strict=True))
    pages = rows[12]["citations_deduped"]
    assert pages[f"{site.url}/1"]["validate_res"] == [{"idx": 0, "result": "supported"}]
    assert "perhaps" in pages[f"{site.url}/tea"]["validate_error"]
    contents = [page["url_content"] for page in rows[11]["citations_deduped"].values()]
    assert all(content.startswith("scrape failed: ") for content in contents)

    result = said("out/fact_result.txt")
    assert (result["n_total"], result["n_scored"], result["n_failed"]) == ("14", "7", "7")
    assert (result["n_with_citations"], result["supported"], result["unsupported"]) == ("5", "27", "476")
    assert (result["unknown"], result["without_url"]) == ("6", "2")
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()[1:6]] == [
        *([stage, "14", "8", "6"] for stage in ("extract", "deduplicate", "scrape")),
        *([stage, "14", "7", "7"] for stage in ("validate", "stat")),
    ]
    assert site.asked == {"/tea": 1, **{f"/{n}": 1 for n in range(25)}}


@pytest.mark.slow
def test_replies_that_are_cut_off_are_asked_for_in_smaller_pieces(site: Site, judge: FactJudge) -> None:
    cut = {"content": '{"citations": [{"fact": "Sta', "finish_reason": "length"}
    judge.says["extract"] = lambda reply, shown: cut if len(reply["citations"]) > 9 else reply
    judge.says["validate"] = lambda reply, shown: cut if len(reply["results"]) > 5 else reply
    padding = "Which is known to everybody who has ever looked into it, and to others. "
    article = "\n\n".join(f"- Statement {n} holds. {site.url}/0\n{padding * 3}" for n in range(20))
    write("reports.jsonl", report(1, article))
    assert fact(*FILES) == 0
    [row] = read("out/validated.jsonl")
    assert [each["fact"] for each in row["citations"]] == [f"Statement {n} holds." for n in range(20)]
    assert labels(row) == {"supported": 1, "unsupported": 19}
    requests = judge.asked.copy()
    assert fact(*FILES) == 0
    assert judge.asked == requests


@pytest.mark.slow
def test_a_reply_that_stays_cut_off_fails_its_row_alone(site: Site, judge: FactJudge) -> None:
    judge.says["extract"] = lambda reply, shown: (
        {"content": "{", "finish_reason": "length"} if "Endless" in shown else reply
    )
    write("reports.jsonl", report(1, "- Endless."), report(2, f"- Tea is a drink. {site.url}/tea"))
    assert fact(*FILES) == 1
    failed, good = read("out/validated.jsonl")
    assert "cut off" in failed["extract_error"]
    assert labels(good) == {"supported": 1}
    judge.says.clear()
    assert fact(*FILES) == 0
    assert said("out/fact_result.txt")["n_failed"] == "0"


def test_a_stage_refuses_rows_without_the_output_of_the_previous_stage(
    judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write("reports.jsonl", report(1, "A."), report(2, "B.", citations_deduped={"http://a.org/": {"facts": ["A."]}}))
    files = ("--raw_data_path", "reports.jsonl", "--output_path", "out.jsonl")
    assert fact("deduplicate", *files) == 1
    assert [row["deduplicate_error"] for row in read("out.jsonl")] == [
        "citations: missing, expected those that `agentbench research fact extract` adds"
    ] * 2
    assert fact("validate", *files) == 1
    assert "expected the output of `agentbench research fact scrape`" in read("out.jsonl")[1]["validate_error"]
    assert judge.asked == {}


@pytest.mark.parametrize("content", [None, "", "not JSON"])
def test_a_file_that_is_not_there_or_has_no_row(content: str | None, judge: FactJudge, capsys: Any) -> None:
    if content is not None:
        Path("reports.jsonl").write_text(content)
    assert fact(*FILES) == 1
    assert "reports.jsonl" in capsys.readouterr().err


def test_stored_rows_in_the_seeds_shapes_are_taken_up(judge: FactJudge, site: Site) -> None:
    stored = report(
        1,
        "A report.",
        citations=[
            {"fact": "Tea is a drink.", "ref_idx": 3, "url": f"{site.url}/tea"},
            {"fact": "No address.", "ref_idx": None, "url": None},
        ],
        citations_deduped={
            f"{site.url}/tea?utm_source=a": {"facts": ["Tea is a drink."], "url_content": None, "article_id": 1},
            f"{site.url}/tea#b": {"facts": ["Tea is hot."], "url_content": "scrape failed: 'url'"},
            "http://gone.invalid/": {"facts": ["It was kept."], "url_content": "It was kept."},
        },
    )
    write("reports.jsonl", stored)
    files = ("--raw_data_path", "reports.jsonl", "--output_path")
    assert fact("deduplicate", *files, "deduplicated.jsonl") == 0
    assert list(read("deduplicated.jsonl")[0]["citations_deduped"]) == [f"{site.url}/tea", ""]
    assert fact("scrape", *files, "scraped.jsonl", "--allow_private", "127.0.0.1") == 0
    [row] = read("scraped.jsonl")
    assert row["citations_deduped"][f"{site.url}/tea?utm_source=a"]["article_id"] == 1
    assert site.asked == {"/tea": 1}
    assert fact("validate", "--raw_data_path", "scraped.jsonl", "--output_path", "validated.jsonl") == 0
    assert labels(read("validated.jsonl")[0]) == {"supported": 2, "unsupported": 1}


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_replies_received_before_an_interrupt_are_not_requested_again(
    ended_by: signal.Signals, site: Site, judge: FactJudge
) -> None:
    rows = [report(n, f"- Tea is a drink. {site.url}/tea\n- Row {n}.") for n in range(4)]
    write("reports.jsonl", *rows)
    held, go_on = threading.Event(), threading.Event()

    def hold(reply: Any, shown: str) -> Any:
        if "Row 2." in shown:
            held.set()
            go_on.wait(30)
        return reply

    judge.says["extract"] = hold
    command = [sys.executable, "-m", "pytest_agentbench.cli", "research", "fact", *FILES, "--n_total_process", "1"]
    with subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) as process:
        assert held.wait(30)
        process.send_signal(ended_by)
        go_on.set()
        _, errors = process.communicate(timeout=30)
    if ended_by == signal.SIGINT:
        assert process.returncode == 130
        assert "repeat the command to continue" in errors
        assert [row["id"] for row in read("out/extracted.jsonl")] == [0, 1]
    judge.says.clear()
    requests = judge.asked.copy()
    assert requests == {"extract": 3}
    assert fact(*FILES) == 0
    assert judge.asked - requests == {"extract": 2, "validate": 4}
    assert said("out/fact_result.txt")["n_scored"] == "4"
