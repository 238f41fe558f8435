from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.research_site import FactJudge, Site

from pytest_agentbench.cli import main

PAGES = {
    "/tea": "Tea is a drink. Tea grows in Assam.",
    "/coffee": "Coffee is a seed.",
    "/water": "Water is wet.",
}
ARTICLE = """\
# Drinks
- Tea is a drink. {site}/tea
- Tea grows in Assam. [2] {site}/tea#assam
- TEA IS A DRINK. {site}/tea?utm_source=agent
- Tea is a drink. {site}/tea
- Coffee is a fruit. {site}/coffee
- Milk is white. [9]
- It is gone. {site}/gone
- Water is wet. [1]

[1] Water
{site}/water
"""
STATISTICS = {
    "total_citations": "4.0",
    "total_valid_citations": "3.0",
    "valid_rate": "0.75",
    "supported": "3",
    "unsupported": "1",
    "unknown": "2",
    "without_url": "1",
    "n_total": "1",
    "n_scored": "1",
    "n_failed": "0",
}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(PAGES) as found:
        yield found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    return tmp_path


def report(number: int | str, article: str, **fields: Any) -> dict[str, Any]:
    return {"id": number, "prompt": f"Question {number}?", "article": article, **fields}


def write(path: Path | str, *rows: dict[str, Any] | str) -> str:
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return str(path)


def read(path: Path | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def said(path: Path | str) -> dict[str, str]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)  # type: ignore[misc]


def fact(*arguments: str) -> int:
    return main(["research", "fact", *arguments])


@pytest.mark.slow
def test_a_model_from_reports_to_statistics(site: Site, judge: FactJudge, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"total_duration_seconds": 60}
    row = report(1, ARTICLE.format(site=site.url), execution_metrics=metrics, further="kept")
    write("data/test_data/raw_data/gpt.jsonl", row)
    assert fact("gpt", "--allow_private", "127.0.0.1") == 0

    folder = Path("results/fact/gpt")
    assert said(folder / "fact_result.txt").items() >= STATISTICS.items()
    assert list(said(folder / "fact_result.txt"))[:3] == list(STATISTICS)[:3]
    [extracted], [deduplicated], [scraped], [validated] = (
        read(folder / f"{stage}.jsonl") for stage in ("extracted", "deduplicated", "scraped", "validated")
    )
    assert extracted == {**row, "citations": extracted["citations"]}
    assert len(extracted["citations"]) == 8
    assert extracted["citations"][-1] == {"fact": "Water is wet.", "ref_idx": "1", "url": f"{site.url}/water"}
    assert deduplicated == {
        **extracted,
        "citations_deduped": {
            f"{site.url}/tea": {"facts": ["Tea is a drink.", "Tea grows in Assam."], "url_content": None},
            f"{site.url}/coffee": {"facts": ["Coffee is a fruit."], "url_content": None},
            "": {"facts": ["Milk is white."], "url_content": None},
            f"{site.url}/gone": {"facts": ["It is gone."], "url_content": None},
            f"{site.url}/water": {"facts": ["Water is wet."], "url_content": None},
        },
    }
    contents = {url: page["url_content"] for url, page in scraped["citations_deduped"].items()}
    assert "Tea grows in Assam." in contents[f"{site.url}/tea"]
    assert contents[""] == "scrape failed: the report gives no address"
    assert contents[f"{site.url}/gone"].startswith("scrape failed: ")
    labels = {
        url: [(each["idx"], each["result"]) for each in page["validate_res"]]
        for url, page in validated["citations_deduped"].items()
    }
    assert labels == {
        f"{site.url}/tea": [(0, "supported"), (1, "supported")],
        f"{site.url}/coffee": [(0, "unsupported")],
        "": [(0, "unknown")],
        f"{site.url}/gone": [(0, "unknown")],
        f"{site.url}/water": [(0, "supported")],
    }
    assert {page["validate_error"] for page in validated["citations_deduped"].values()} == {None}

    assert judge.asked == {"extract": 1, "deduplicate": 1, "validate": 3}
    assert site.asked == {"/tea": 1, "/coffee": 1, "/gone": 1, "/water": 1}
    printed = capsys.readouterr()
    assert "1 of 6 statements have no address in the report" in printed.err
    assert str(folder / "fact_result.txt") in printed.out


@pytest.mark.slow
def test_a_second_call_asks_and_fetches_nothing(site: Site, judge: FactJudge) -> None:
    write("reports.jsonl", report(1, ARTICLE.format(site=site.url)))
    arguments = ("--raw_data_path", "reports.jsonl", "--output_dir", "out", "--allow_private", "127.0.0.1")
    assert fact(*arguments) == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    requests, fetched = judge.asked.copy(), site.asked.copy()
    for path in Path("out").iterdir():
        path.unlink()
    assert fact(*arguments) == 0
    assert judge.asked == requests
    assert site.asked - fetched == {"/gone": 1}  # what failed may be there by now
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


@pytest.mark.slow
def test_a_row_that_failed_is_the_only_one_that_is_asked_again(
    site: Site, judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.says["extract"] = lambda reply, shown: {"error": "no"} if "Coffee" in shown else reply
    tea, coffee = f"- Tea is a drink. {site.url}/tea", f"- Coffee is a seed. {site.url}/coffee"
    write("reports.jsonl", report(1, tea), report(2, coffee))
    arguments = ("--raw_data_path", "reports.jsonl", "--output_dir", "out", "--allow_private", "127.0.0.1")
    assert fact(*arguments) == 1
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()[1:6]] == [
        [stage, "2", "1", "1"] for stage in ("extract", "deduplicate", "scrape", "validate", "stat")
    ]
    assert "extract: 2: no verdict in 3 replies" in printed.err
    good, failed = read("out/validated.jsonl")
    assert "citations: missing" in failed["extract_error"]
    assert (failed["id"], failed["article"], "citations" in failed) == (2, coffee, False)
    result = said("out/fact_result.txt")
    assert (result["n_total"], result["n_scored"], result["n_failed"], result["valid_rate"]) == ("2", "1", "1", "1.0")

    judge.says.clear()
    requests, fetched = judge.asked.copy(), site.asked.copy()
    assert fact(*arguments) == 0
    assert judge.asked - requests == {"extract": 1, "validate": 1}
    assert site.asked - fetched == {"/coffee": 1}
    again, scored = read("out/validated.jsonl")
    assert again == good
    assert "extract_error" not in scored
    assert said("out/fact_result.txt")["n_scored"] == "2"


@pytest.mark.slow
def test_single_stages_give_the_files_of_the_whole_command(site: Site, judge: FactJudge) -> None:
    write("reports.jsonl", report("a", ARTICLE.format(site=site.url)))
    assert fact("--raw-data-path", "reports.jsonl", "--output-dir", "whole", "--allow-private", "127.0.0.1") == 0
    source = "reports.jsonl"
    for stage, target in {
        "extract": "extracted.jsonl",
        "deduplicate": "deduplicated.jsonl",
        "scrape": "scraped.jsonl",
        "validate": "validated.jsonl",
    }.items():
        target = f"single/{target}"
        network = ["--allow_private", "127.0.0.1"] if stage == "scrape" else []
        files = ["--raw_data_path", source, "--output_path", target]
        assert fact(stage, *files, "--n_total_process", "3", *network) == 0
        source = target
    assert fact("stat", "--input_path", source, "--output_path", "single/fact_result.txt") == 0
    assert {path.name: path.read_bytes() for path in Path("whole").iterdir()} == {
        path.name: path.read_bytes() for path in Path("single").iterdir()
    }


def test_a_scripted_judge(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    urls = [f"{site.url}/tea", f"{site.url}/coffee"]
    facts = ["Tea is a drink.", "Tea is hot.", "Coffee is a seed."]
    citations = [{"fact": fact, "ref_idx": "", "url": urls[number // 2]} for number, fact in enumerate(facts)]
    labels = {"idx": 0, "reason": "", "result": "supported"}, {"idx": 1, "reason": "", "result": "UNSUPPORTED"}
    script = {
        "schema_version": 1,
        "research": {"extract": {"citations": []}, "deduplicate": {"kept": [0, 1]}},
        "researches": {
            "7": {"extract": {"citations": citations}, "validate": [{"results": labels[:2]}, {"results": labels[:1]}]}
        },
    }
    Path("x.demo.yaml").write_text(
        yaml.safe_dump(script | {"researches": json.loads(json.dumps(script["researches"]))})
    )
    write("reports.jsonl", report(7, f"Tea ({urls[0]}) and coffee ({urls[1]})."), report(8, "Nothing is cited."))
    files = ("--raw_data_path", "reports.jsonl", "--output_dir", "out")
    assert fact(*files, "--allow_private", "127.0.0.1", "--judge", "demo", "--script", "x.demo.yaml") == 0
    result = said("out/fact_result.txt")
    assert (result["supported"], result["unsupported"], result["n_total"], result["n_with_citations"]) == (
        *("2", "1"),
        *("2", "1"),
    )


def test_a_long_report_is_read_in_pieces_that_share_its_list_of_references(site: Site, judge: FactJudge) -> None:
    padding = "It is told at length, by everybody who was there. " * 40
    statements = "\n\n".join(f"- Statement {n} holds. [{n % 3}]\n{padding}" for n in range(40))
    listed = "\n".join(f"{n}. A title ({site.url}/{name})" for n, name in enumerate(("tea", "coffee")))
    write("reports.jsonl", report(1, f"{statements}\n\n## References\n{listed}"))
    assert fact("extract", "--raw_data_path", "reports.jsonl", "--output_path", "extracted.jsonl") == 0
    [row] = read("extracted.jsonl")
    urls = [f"{site.url}/tea", f"{site.url}/coffee", ""]
    assert [(each["fact"], each["url"]) for each in row["citations"]] == [
        (f"Statement {n} holds.", urls[n % 3]) for n in range(40)
    ]
    assert judge.asked["extract"] > 1


def test_reports_in_one_language(site: Site, judge: FactJudge) -> None:
    chinese = {**report(1, f"- 茶是饮料。 {site.url}/tea"), "prompt": "茶是什么？"}
    english = report(2, f"- Tea is a drink. {site.url}/tea")
    write("reports.jsonl", chinese, english, report(3, "Nothing."))
    assert fact("extract", "--raw_data_path", "reports.jsonl", "--output_path", "zh.jsonl", "--only_zh") == 0
    assert [row["id"] for row in read("zh.jsonl")] == [1]
    assert "所有带引用的陈述" in judge.shown[-1][1]
    assert (
        fact("extract", "--raw_data_path", "reports.jsonl", "--output_path", "en.jsonl", "--only-en", "--limit", "1")
        == 0
    )
    assert [row["id"] for row in read("en.jsonl")] == [2]
    assert "List every statement" in judge.shown[-1][1]


def test_queries_say_the_language_and_every_report_needs_its_own(
    judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write("reports.jsonl", report(1, "- A."), report(2, "- B."), report(3, "- C."))
    write(
        "query.jsonl",
        {"id": 1, "prompt": "Question  1?", "language": "zh"},
        {"id": 9, "prompt": "Question 2?", "language": "en"},
    )
    files = ("--raw_data_path", "reports.jsonl", "--output_path", "extracted.jsonl")
    assert fact("extract", *files, "--query_data_path", "query.jsonl") == 1
    first, second, third = read("extracted.jsonl")
    assert first["citations"] == [{"fact": "A.", "ref_idx": "", "url": ""}]
    assert "所有带引用的陈述" in judge.shown[-1][1]
    assert "query.jsonl:2:1: id: found 9 for the prompt that has the id 2 elsewhere" in second["extract_error"]
    assert "query.jsonl: found no row with the prompt of 3" in third["extract_error"]
    assert judge.asked == {"extract": 1}


def test_a_budget_that_is_used_up_fails_the_rows_that_are_left(
    site: Site, judge: FactJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    write("reports.jsonl", report(1, "- A."))
    files = ("--raw_data_path", "reports.jsonl", "--output_path", "extracted.jsonl")
    assert fact("extract", *files, "--max_cost", "0") == 1
    assert judge.asked == {}
    assert "the budget is used up" in read("extracted.jsonl")[0]["extract_error"]


def test_the_jina_reader_reads_the_pages_where_there_is_a_key_for_it(
    site: Site, judge: FactJudge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JINA_API_KEY", "key-of-nobody")
    monkeypatch.setenv("JINA_BASE_URL", f"{site.url}/")
    pages = {f"{site.url}/tea": {"facts": ["Tea is a drink."], "url_content": None}}
    write("deduplicated.jsonl", report(1, "Tea.", citations_deduped=pages))
    files = ("--raw_data_path", "deduplicated.jsonl", "--output_path", "scraped.jsonl")
    assert fact("scrape", *files, "--allow_private", "127.0.0.1") == 0
    [row] = read("scraped.jsonl")
    assert row["citations_deduped"][f"{site.url}/tea"]["url_content"] == f"Read\n\n{PAGES['/tea']}"
    assert site.read == [(f"{site.url}/tea", "Bearer key-of-nobody")]
    assert site.asked == {}
    assert "the Jina reader fetches the pages, as JINA_API_KEY is set" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("gpt", "--raw_data_path", "reports.jsonl"),
        ("extract", "--raw_data_path", "reports.jsonl"),
        ("stat", "--raw_data_path", "x", "--output_path", "y"),
        ("scrape", "--raw_data_path", "x", "--output_path", "y", "--judge", "demo"),
        ("gpt", "--limit", "0"),
        ("gpt", "--allow_private", "everything"),
        ("gpt", "--allow_private", "10.1.0.0/8"),
        ("gpt", "--only_zh", "--only_en"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = fact(*arguments)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert capsys.readouterr().err


def test_without_a_judge_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("OPENAI_MODEL", raising=False)
    write("reports.jsonl", report(1, "- A."))
    assert fact("extract", "--raw_data_path", "reports.jsonl", "--output_path", "extracted.jsonl") == 1
    assert "found no judge" in capsys.readouterr().err
    assert not Path("extracted.jsonl").exists()


def test_help_names_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fact("--help")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {stage} " in printed for stage in ("extract", "deduplicate", "scrape", "validate", "stat"))


@pytest.mark.slow
def test_a_scrape_without_any_readable_page_fails_with_a_warning(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def cited(*paths: str) -> dict[str, Any]:
        pages = {f"{site.url}{path}": {"facts": ["A fact."]} for path in paths}
        return report(1, "An article.", citations_deduped={**pages, "": {"facts": ["Without an address."]}})

    files = ("--raw_data_path", "deduplicated.jsonl", "--output_path", "scraped.jsonl")
    write("deduplicated.jsonl", cited("/gone", "/gone/too"))
    assert fact("scrape", *files, "--allow_private", "127.0.0.1") == 1
    out, err = capsys.readouterr()
    assert "0 of 2 cited pages could be read; scraped.jsonl has the reason for each" in err
    assert out.splitlines()[1].split() == ["scrape", "1", "1", "0", "without", "a", "result"]
    assert read("scraped.jsonl")[0]["citations_deduped"][f"{site.url}/gone"]["url_content"].startswith("scrape failed")
    write("deduplicated.jsonl", cited("/gone", "/tea"))
    assert fact("scrape", *files, "--allow_private", "127.0.0.1") == 0
    write("deduplicated.jsonl", cited())
    assert fact("scrape", *files, "--allow_private", "127.0.0.1") == 0
