from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.cli import main

DIMENSIONS = ("comprehensiveness", "insight", "instruction_following", "readability")
PROMPT = "Which port grew most?"
EXPERTS = {"finance": {"avg_hourly_rate_usd": 200, "avg_task_time_hours": 2.5}}
LEVELS = {str(n): {"expert_time_multiplier": n / 2, "difficulty_score": n} for n in (1, 2)}
PRICES = {"gpt": {"input_price_per_1k": 0.01, "output_price_per_1k": 0.03}}
ARTICLE = "Busan grew most of all ports[1], by 12 percent[2]."


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lint(capsys, tmp_path):
    def call(*args: str):
        code = main(["research", "lint", *args])
        return code, [line.replace(f"{tmp_path}/", "") for line in capsys.readouterr().out.splitlines()]

    return call


def write(name: str, *rows: object) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def annotations(folder: str = "annotation", **changed: object) -> str:
    files = {"domain_expert_data": EXPERTS, "complexity_level_data": LEVELS, "token_pricing_data": PRICES, **changed}
    for name, data in files.items():
        write(f"{folder}/{name}.json", data)
    return folder


def query(number: int = 1, prompt: str = PROMPT, **more: object) -> dict:
    return {"id": number, "prompt": prompt, **more}


def criteria(number: int = 1, prompt: str = PROMPT, **changed: object) -> dict:
    listed = {
        name: [
            {"criterion": f"{name} a", "explanation": "", "weight": 0.3},
            {"criterion": f"{name} b", "explanation": "", "weight": 0.7},
        ]
        for name in DIMENSIONS
    }
    weights = dict.fromkeys(DIMENSIONS, 0.25)
    return {"id": number, "prompt": prompt, "dimension_weight": weights, "criterions": {**listed, **changed}}


def report(number: int = 1, prompt: str = PROMPT, article: str = ARTICLE, **metrics: object) -> dict:
    usage = {"input_tokens": 1000, "output_tokens": 2000, "total_cost_usd": 0.07}
    placed = {"domain": "finance", "complexity_level": 2}
    measured = {
        "total_duration_seconds": 600 + number,
        "token_usage": usage,
        "automation_level": 0.9,
        "tool_calls_count": 3,
        "sources_used": 2,
        "citation_count": 2,
        "word_count": 8,
        **metrics,
    }
    return {"id": number, "prompt": prompt, "article": article, "execution_metrics": measured, **placed}


def test_sound_files_have_no_findings(lint):
    write("data/prompt_data/query.jsonl", query(domain="finance", complexity_level=2, language="en"))
    write("data/criteria_data/criteria.jsonl", criteria())
    write("data/reference/reference.jsonl", query(article="Shanghai grew most."))
    write("data/test_data/raw_data/gpt.jsonl", report())
    annotations("data/annotation")
    assert lint() == (0, ["5 files, 4 rows: 0 errors, 0 warnings, 0 to review"])


def test_nothing_to_check_is_wrong_usage(lint, capsys):
    assert lint() == (2, [])
    write("a/notes.txt", "none")
    assert lint("--raw-data-dir", "a")[0] == 1
    assert lint("--query-file", "nowhere.jsonl")[0] == 1


def test_ids_and_prompts_that_repeat(lint):
    write("q.jsonl", query(), query(2, f"{PROMPT} "), query(1, "Another?"), {"id": "1", "prompt": "As a text?"})
    code, lines = lint("--query-file", "q.jsonl")
    assert code == 1
    assert lines[:-1] == [
        "q.jsonl:2: error: prompt: found 'Which port grew most?' of line 1 again, expected one row for each",
        "q.jsonl:3: error: id: found 1 of line 1 again, expected one row for each",
        "q.jsonl:4: error: id: found '1' of line 1 again, expected one row for each",
    ]


def test_unreadable_rows_are_reported_with_their_field(lint):
    write("q.jsonl", "{bad", {"id": True, "prompt": "a"}, query(language="fr"), [1], {"prompt": "b"})
    code, lines = lint("--query-file", "q.jsonl")
    assert code == 1
    assert lines[0].startswith("q.jsonl:1: error: found not valid JSON")
    assert "q.jsonl:3: error: language: found 'fr', expected 'zh' or 'en'" in lines
    assert "q.jsonl:4: error: found a list, expected an object" in lines
    assert any(line.startswith("q.jsonl:2: error: id: found true") for line in lines)
    assert any(line.startswith("q.jsonl:5: error: id: found nothing") for line in lines)
    assert lines[-1].startswith("1 file, 5 rows: ")
    Path("empty.jsonl").touch()
    assert lint("--query-file", "empty.jsonl") == (
        1,
        [
            "empty.jsonl:1: error: found no row, expected at least one",
            "1 file, 0 rows: 1 error, 0 warnings, 0 to review",
        ],
    )


def test_wrong_sums_and_repeated_and_missing_criteria(lint):
    twice = [{"criterion": "Depth", "weight": 0.5}, {"criterion": " depth", "weight": 0.49999}]
    row = criteria(insight=twice, readability=[{"criterion": "comprehensiveness a", "weight": 1}])
    del row["criterions"]["instruction_following"]
    row["dimension_weight"] = {"comprehensiveness": 0.5, "insight": 0.25, "instruction_following": 0.25}
    code, lines = lint("--criteria-file", write("c.jsonl", row))
    assert code == 1
    assert lines[:-1] == [
        "c.jsonl:1: error: criterions.instruction_following: found no criterion, expected at least one",
        "c.jsonl:1: error: dimension_weight.readability: found nothing, expected a weight",
        "c.jsonl:1: error: criterions.insight: found ' depth' twice, expected each criterion once",
        "c.jsonl:1: error: criterions.insight: found weights that sum to 0.99999, expected 1",
        "c.jsonl:1: warning: criterions.readability: found 'comprehensiveness a', which comprehensiveness has too, "
        "expected one dimension for it",
    ]


def test_a_sum_within_a_millionth_is_right(lint):
    near = [{"criterion": "a", "weight": 0.3333333}, {"criterion": "b", "weight": 0.6666662}]
    assert lint("--criteria-file", write("c.jsonl", criteria(insight=near)))[0] == 0


def test_wrong_joins_and_missing_partners(lint):
    write("q.jsonl", query(1), query(2, "Second?"), query(3, "Third?"))
    write("c.jsonl", criteria(1), criteria(9, "Nobody asked?"))
    write("gpt.jsonl", report(5), report(2, "Changed?"), report(8, "Lost?"))
    code, lines = lint("--query-file", "q.jsonl", "--criteria-file", "c.jsonl", "--input-file", "gpt.jsonl")
    assert code == 1
    assert sorted(line for line in lines if ": error: " in line) == [
        "gpt.jsonl:1: error: id: found 5, expected 1, which c.jsonl:1 has for this prompt",
        "gpt.jsonl:1: error: id: found 5, expected 1, which q.jsonl:1 has for this prompt",
        "gpt.jsonl:2: error: prompt: found 'Changed?', expected that of q.jsonl:2: 'Second?'",
        "gpt.jsonl:2: error: prompt: found no criteria for 2, expected one in c.jsonl",
        "gpt.jsonl:3: error: prompt: found no criteria for 8, expected one in c.jsonl",
        "gpt.jsonl:3: error: prompt: found no query for 8, expected one in q.jsonl",
    ]
    assert sorted(line for line in lines if "warning" in line and "prompt" in line) == [
        "c.jsonl:1: warning: prompt: found no row for 2 of 3 prompts of q.jsonl (2, 3), expected one for each",
        "c.jsonl:2: warning: prompt: found no query for 1 of 2 rows (9), expected one in q.jsonl",
        "gpt.jsonl:1: warning: prompt: found no row for 1 of 3 prompts of q.jsonl (3), expected one for each",
    ]


def test_unknown_domains_and_levels(lint):
    write("q.jsonl", query(domain="tea", complexity_level=9), query(2, "b", domain="finance", complexity_level="easy"))
    folder = annotations()
    code, lines = lint("--query-file", "q.jsonl", "--annotation-dir", folder)
    assert code == 1
    assert lines[:-1] == [
        "q.jsonl:1: error: domain: found 'tea', expected one of finance (annotation/domain_expert_data.json)",
        "q.jsonl:1: error: complexity_level: found 9, expected one of 1, 2 (annotation/complexity_level_data.json)",
        "q.jsonl:2: error: complexity_level: found 'easy', expected one of 1, 2 "
        "(annotation/complexity_level_data.json)",
    ]
    own = {"task_complexity_mapping": {"easy": 1}, "domain_expert_rates": {"tea": 1}, "domain_expert_times": {"tea": 1}}
    lines = lint("--query-file", "q.jsonl", "--annotation-dir", folder, "--config", write("poet.json", own))[1]
    assert len(lines) == 2
    assert "complexity_level: found 9" in lines[0]


def test_topics_that_are_no_domain_and_rows_without_a_level(lint):
    rows = [query(1, "a", topic="Money"), query(2, "b", topic="Money", complexity_level=1), query(3, "c")]
    given = ("--query-file", write("q.jsonl", *rows), "--annotation-dir", annotations())
    code, lines = lint(*given)
    assert code == 0
    assert lines[:-1] == [
        "q.jsonl:1: warning: topic: found 'Money' in 2 rows without a domain, expected one of finance "
        "(annotation/domain_expert_data.json), or --domain-map 'Money=DOMAIN'",
        "q.jsonl:1: warning: complexity_level: found none in 2 rows, expected one in each",
        "q.jsonl:3: warning: domain: found none in 1 row, expected one in each",
    ]
    assert not any("topic" in line for line in lint(*given, "--domain-map", "Money=finance")[1])


def test_annotations_that_cannot_be_used_or_look_wrong(lint):
    Path("none").mkdir()
    code, lines = lint("--annotation-dir", "none")
    assert code == 1
    assert len(lines) == 4
    assert all("is missing" in line for line in lines[:-1])
    folder = annotations(
        domain_expert_data={"finance": {"avg_hourly_rate_usd": 0, "avg_task_time_hours": 1}},
        complexity_level_data={"1": {"expert_time_multiplier": 2}, "2": {"expert_time_multiplier": 1}},
        task_type_data={"report": {"expert_time_hours": 1, "complexity_level": 7}},
    )
    code, lines = lint("--annotation-dir", folder)
    assert code == 1
    assert lines[:-1] == [
        "annotation/complexity_level_data.json:1: warning: expert_time_multiplier: found [2.0, 1.0], expected values "
        "that rise with the levels",
        "annotation/domain_expert_data.json:1: warning: finance.avg_hourly_rate_usd: found 0, expected above 0: "
        "nothing can be saved otherwise",
        "annotation/task_type_data.json:1: error: report.complexity_level: found 7, expected a level of "
        "complexity_level_data.json",
    ]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"word_count": 3000}, "warning: execution_metrics.word_count: found 3000, expected 8, as the article has"),
        ({"citation_count": 0}, "warning: execution_metrics.citation_count: found 0, expected 2, as the article has"),
        ({"sources_used": 1}, "warning: execution_metrics.sources_used: found 1, expected at least 2"),
        ({"tool_calls_count": 1.5}, "warning: execution_metrics.tool_calls_count: found 1.5, expected a whole number"),
        (
            {"automation_level": 1.2},
            "error: execution_metrics.automation_level: found 1.2, expected at most 1",
        ),
        ({"automation_level": None}, "warning: execution_metrics.automation_level: found nothing"),
        ({"total_duration_seconds": None}, "warning: execution_metrics.total_duration_seconds: found nothing"),
        ({"total_duration_seconds": 0}, "warning: execution_metrics.total_duration_seconds: found 0"),
        ({"token_usage": {"input_tokens": 5}}, "warning: execution_metrics.token_usage: found neither a cost nor all"),
        (
            {"token_usage": {"output_tokens": 1, "total_cost_usd": 1}},
            "warning: execution_metrics.token_usage.output_tokens: found 1, expected enough for the 8 words",
        ),
        (
            {"token_usage": {"input_tokens": 1000, "output_tokens": 2000, "total_cost_usd": 7}},
            "review: execution_metrics.token_usage.total_cost_usd: found 7, expected about 0.07 for its tokens",
        ),
    ],
)
def test_metrics_that_cannot_be_true_or_are_missing(lint, metrics, said):
    write("gpt.jsonl", report(**metrics))
    code, lines = lint("--input-file", "gpt.jsonl", "--annotation-dir", annotations())
    assert code == int(said.startswith("error"))
    assert len(lines) == 2
    assert lines[0].startswith(f"gpt.jsonl:1: {said}")


def test_counts_that_are_nearly_right_and_articles_that_cite_by_links_are_left_alone(lint):
    text = " ".join(["word"] * 100)
    links = report(2, "b", f"{text} [here](https://a.example/) and [there](https://b.example/).", citation_count=2)
    links["execution_metrics"] |= {"word_count": 104, "sources_used": 2}
    assert lint("--input-file", write("gpt.jsonl", report(), links), "--annotation-dir", annotations())[0] == 0


def test_a_model_without_a_price_needs_a_cost(lint):
    usage = {"input_tokens": 10, "output_tokens": 2000}
    write("claude.jsonl", report(token_usage=usage))
    lines = lint("--input-file", "claude.jsonl", "--annotation-dir", annotations())[1]
    assert "total_cost_usd: found nothing, expected a cost, as there is no price of 'claude'" in lines[0]


def test_copied_metrics_and_copied_articles(lint):
    first, second = report(1, total_duration_seconds=60), report(2, "b", total_duration_seconds=60)
    write("gpt.jsonl", first, second)
    write("r.jsonl", query(article=ARTICLE))
    lines = lint("--input-file", "gpt.jsonl", "--reference-file", "r.jsonl")[1]
    expected = "gpt.jsonl:2: review: execution_metrics: found 60 seconds and 0.07 USD, as on line 1, expected the "
    assert f"{expected}measurements of this run" in lines
    copies = [line for line in lines if ": article: " in line]
    assert copies == [
        "r.jsonl:1: warning: article: found the text of gpt.jsonl:1, expected a different report",
        "gpt.jsonl:2: warning: article: found the text of gpt.jsonl:1, expected a different report",
    ]


@pytest.mark.parametrize(
    ("language", "prompt", "expected"),
    [
        ("zh", "Which port grew most?", "'en'"),
        ("en", "哪个港口增长最快？", "'zh'"),
        ("zh", "请比较 Transformer、Mamba、RWKV and Hyena 的性能", None),
        ("en", "What does 内卷 mean to people who were born after 1995?", None),
        (None, "哪个港口增长最快？", None),
    ],
)
def test_a_language_that_is_not_the_prompts(lint, language, prompt, expected):
    lines = lint("--query-file", write("q.jsonl", query(prompt=prompt, language=language)))[1]
    found = [line for line in lines if ": language: " in line]
    assert found == (
        []
        if expected is None
        else [f"q.jsonl:1: warning: language: found '{language}', expected {expected}, the language of the prompt"]
    )


def test_a_report_in_another_language_is_to_be_looked_at(lint):
    row = report(prompt="哪个港口增长最快？")
    lines = lint("--input-file", write("gpt.jsonl", row))[1]
    assert lines[0] == "gpt.jsonl:1: review: article: found a text in 'en', expected 'zh', that of the query"


def test_empty_texts(lint):
    write("gpt.jsonl", {"id": 1, "prompt": " ", "article": ""})
    lines = lint("--input-file", "gpt.jsonl")[1]
    assert lines[:2] == [
        "gpt.jsonl:1: error: prompt: found an empty text, expected the query",
        "gpt.jsonl:1: error: article: found an empty text, expected a report",
    ]


def test_scores_far_from_the_others_and_impossible_ones(lint):
    rows = [{"id": n, "prompt": str(n), "overall_score": 0.4 + n / 1000} for n in range(12)]
    rows += [{"id": 50, "prompt": "x", "overall_score": 0.9}, {"id": 51, "prompt": "y", "overall_score": 1.4}]
    rows += [{"id": 52, "prompt": "z", "race_error": "the judge gave no scores"}, {"id": 3, "overall_score": None}]
    write("raw_results.jsonl", *rows)
    code, lines = lint("--results", "raw_results.jsonl")
    assert code == 1
    assert lines[0].startswith("raw_results.jsonl:13: review: overall_score: found 0.9 (modified z-score ")
    assert lines[1] == "raw_results.jsonl:14: error: overall_score: found 1.4, expected a number from 0 to 1, or null"
    assert lines[2] == "raw_results.jsonl:16: error: id: found '3' of line 4 again, expected one row for each"
    assert len(lines) == 4


def test_of_few_scores_none_is_an_outlier(lint):
    write("raw_results.jsonl", *[{"id": n, "overall_score": 0.4} for n in range(8)], {"id": 9, "overall_score": 0.9})
    assert lint("--results", "raw_results.jsonl")[1] == ["1 file, 9 rows: 0 errors, 0 warnings, 0 to review"]


def test_a_poet_summary_is_a_document_with_its_rows(lint):
    rows = [{"task_id": n, "overall_poet_score": 0.5, "cost_saving_usd": 400 + n} for n in range(12)]
    rows += [{"task_id": 50, "overall_poet_score": None, "cost_saving_usd": -90000}]
    Path("gpt_poet_summary.json").write_text(json.dumps({"model": "gpt", "results": rows}, indent=1))
    code, lines = lint("--results", "gpt_poet_summary.json")
    assert code == 0
    assert "cost_saving_usd: found -9e+04 (modified z-score" in lines[0]
    assert lines[1] == "1 file, 13 rows: 0 errors, 0 warnings, 1 to review"


def test_findings_as_json(capsys):
    write("q.jsonl", query(), query(2, PROMPT), query(3, "哪个港口？", language="en"))
    assert main(["research", "lint", "--query-file", "q.jsonl", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert {name: document[name] for name in ("files", "rows", "errors", "warnings", "review")} == {
        "files": 1,
        "rows": 3,
        "errors": 1,
        "warnings": 1,
        "review": 0,
    }
    assert document["findings"][0] == {
        "file": "q.jsonl",
        "line": 2,
        "severity": "error",
        "field": "prompt",
        "found": "'Which port grew most?' of line 1 again",
        "expected": "one row for each",
    }


def test_a_hostile_text_cannot_steer_the_terminal(capsys):
    write("q.jsonl", query(prompt="\x1b[31mred"), query(2, "\x1b[31mred"))
    main(["research", "lint", "--query-file", "q.jsonl"])
    assert "\x1b" not in capsys.readouterr().out


SUBJECTS = {
    1: "Which container ports of Asia grew fastest since the pandemic, and why?",
    2: "How do heat pumps compare with gas boilers in old houses of Norway?",
    3: "Explain how vaccines against malaria train the immune system of children.",
    4: "比较三种量子网络协议的安全性和传输距离。",
    5: "分析城市污水处理收费机制的效率问题。",
}
SHARED = Path(__file__).parents[4] / "shared" / "data" / "research"


def of_subject(number: int, subject: int) -> dict:
    """Criteria at one query with the words of another one."""
    listed = [
        {"criterion": f"Coverage of: {SUBJECTS[subject]}", "explanation": "It is named and explained.", "weight": 1}
    ]
    return criteria(number, SUBJECTS[number], comprehensiveness=listed)


@pytest.mark.parametrize(
    ("order", "swapped"),
    [
        ((1, 2, 3, 4, 5), {}),
        ((2, 1, 3, 4, 5), {1: 2, 2: 1}),
        ((2, 3, 1, 5, 4), {1: 2, 2: 3, 3: 1, 4: 5, 5: 4}),
    ],
)
def test_criteria_of_another_query_are_found_by_their_words(order, swapped, lint):
    file = write("c.jsonl", *(of_subject(number, subject) for number, subject in enumerate(order, 1)))
    code, shown = lint("--criteria-file", file)
    assert code == 0
    found = [line for line in shown if "the words of query" in line]
    assert [line.split(" (")[0] for line in found] == [
        f"c.jsonl:{line}: warning: criterions: found the words of query {subject}" for line, subject in swapped.items()
    ]


def test_swapped_criteria_are_found_by_the_words_of_queries_without_criteria(lint):
    queries = write("q.jsonl", *(query(number, prompt) for number, prompt in SUBJECTS.items()))
    file = write("c.jsonl", of_subject(3, 2))
    assert any("the words of query 2" in line for line in lint("--criteria-file", file, "--query-file", queries)[1])
    assert not any("the words of query" in line for line in lint("--criteria-file", file)[1])


def test_criteria_of_variants_of_one_query_are_left_alone(lint):
    prompts = [f"Assess the risks of data breaches in the products of {name}." for name in ("Acme", "Borg", "Cyan")]
    prompts.append("Assess the risks of data breaches.")
    rows = []
    for number, prompt in enumerate(prompts, 1):
        listed = [{"criterion": "Risks of data breaches", "explanation": "All products.", "weight": 1}]
        rows.append(criteria(number, prompt, comprehensiveness=listed))
    assert not any("the words of query" in line for line in lint("--criteria-file", write("c.jsonl", *rows))[1])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize("name", ["drb_criteria_20.jsonl", "tickr_pointwise/criteria.jsonl"])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_swapped_criteria_of_real_queries_are_found(name, shift, lint):
    rows = [json.loads(line) for line in (SHARED / name).read_text(encoding="utf-8").splitlines()]
    # The last row stays: of 20 criteria 19 are swapped
    last = len(rows) - 1
    moved = [rows[(at + shift) % last]["criterions"] for at in range(last)] + [rows[last]["criterions"]]
    file = write("c.jsonl", *({**row, "criterions": other} for row, other in zip(rows, moved, strict=True)))
    found = [line.split(":")[1] for line in lint("--criteria-file", file)[1] if "the words of query" in line]
    assert found == [str(line) for line in range(1, len(rows))] if shift else not found
