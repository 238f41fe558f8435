"""`agentbench research strategic`: what reports are worth beyond their task, and what is kept of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.packs.research.call import case_id
from pytest_agentbench.packs.research.knowledge import make_unit

SCORES = dict(
    zip(
        (
            *("multi_step_reasoning", "domain_expertise", "synthesis_capability", "independence"),
            *("knowledge_extraction", "knowledge_organization", "knowledge_reuse_potential", "knowledge_quality"),
        ),
        (4, 5, 4, 3, 3, 3, 4, 4),
        strict=True,
    )
)
TIN, LEAD = "Tin melts at 232 degrees.", "Lead melts at 327 degrees."


def scores(**others: float) -> dict[str, Any]:
    return {name: {"reason": f"Read {name}.", "score": score} for name, score in {**SCORES, **others}.items()}


def units(*entries: tuple[str, float]) -> dict[str, Any]:
    return {"units": [{"text": text, "quality": quality} for text, quality in entries]}


class Reports:
    """A folder with reports of one model and what a scripted judge says of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "gpt.jsonl"
        self.rows: list[dict[str, Any]] = [
            {"id": 1, "prompt": "What does tin do?", "article": "Tin is soft. It melts at 232 degrees."},
            {"id": 2, "prompt": "What of lead?", "article": "Lead melts at 327 degrees. Tin melts at 232 degrees."},
        ]
        self.said: dict[int | str, dict[str, Any]] = {
            1: {"knowledge": units((TIN, 0.9), ("Tin is soft.", 0.6), ("Soft.", 0.2))},
            2: {"knowledge": units((LEAD, 0.8), (TIN, 0.7)), "reuse": {"reused": [make_unit(TIN, 0).id]}},
        }

    def run(
        self,
        *options: str,
        file: Path | None = None,
        judge: tuple[str, ...] = ("--judge", "demo", "--script", "judge.demo.yaml"),
    ) -> int:
        file = file or self.file
        file.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        reply = {str(row): reply for row, reply in self.said.items()}
        script = {"schema_version": 1, "research": {"strategic": scores()}, "researches": reply}
        (self.folder / "judge.demo.yaml").write_text(yaml.safe_dump(script))
        places = ("--kept", str(self.folder / "kept"), "--results_dir", str(self.folder / "results"))
        return main(["research", "strategic", "--input_file", str(file), *judge, *places, *options])

    def result(self, model: str = "gpt") -> dict[str, Any]:
        path = self.folder / "results" / "strategic" / model / "strategic_report.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    @property
    def base(self) -> list[dict[str, Any]]:
        path = self.folder / "kept" / "research" / "knowledge_base.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reports:
    monkeypatch.chdir(tmp_path)
    return Reports(tmp_path)


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in found]


def test_the_report_has_scores_new_knowledge_and_reused_knowledge(
    reports: Reports, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reports.run() == 0
    result = reports.result()
    assert [result[name] for name in ("n_total", "n_scored", "n_failed", "n_not_reached")] == [2, 2, 0, 0]
    first, second = result["results"]
    assert first["strategic_score"] == pytest.approx(0.6 * 16 / 20 + 0.4 * 14 / 20)
    assert first["scores"] == SCORES
    assert first["score_reasons"]["independence"] == "Read independence."
    # The first adds two units; its third one is of too low a quality. The second repeats one of these.
    assert texts(first["created"]) == [TIN, "Tin is soft."]
    assert (first["below_quality"], first["repeated"], first["reused"]) == (1, 0, [])
    assert first["knowledge_creation_value"] == pytest.approx(1.5)
    assert texts(second["created"]) == [LEAD]
    assert (second["below_quality"], second["repeated"]) == (0, 1)
    assert texts(second["reused"]) == [TIN]
    assert second["reasons"] == {"complexity_adaptability": "there are no annotations"}
    assert result["means"]["knowledge_units_created"]["mean"] == 1.5
    assert [row["task_id"] for row in reports.base] == [1, 2]
    assert "strategic" in capsys.readouterr().out


def test_the_same_command_again_gives_the_same_and_adds_nothing(reports: Reports) -> None:
    assert reports.run() == 0
    result, base = reports.result(), reports.base
    assert reports.run() == 0
    assert (reports.result(), reports.base) == (result, base)


@pytest.mark.slow
def test_a_repeated_call_reuses_stored_replies_and_repeats_failed_requests(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    away = True

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        stage = body["response_format"]["json_schema"]["name"].removeprefix("research_")
        row = 2 if "Lead melts" in body["messages"][1]["content"] else 1
        asked.append((stage, row))
        reply = {"strategic": scores(), **reports.said[row]}[stage]
        return {
            "role": "assistant",
            "content": "..." if away and (stage, row) == ("knowledge", 2) else json.dumps(reply),
        }

    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_MODEL", "judge-1")
    with FaultEndpoint(answer=answer) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        assert reports.run(judge=()) == 1
        away = False
        asked.clear()
        assert reports.run(judge=()) == 0
        assert asked == [("knowledge", 2), ("reuse", 2)]
        result, base = reports.result(), reports.base
        asked.clear()
        assert reports.run(judge=()) == 0
    assert asked == []
    assert (reports.result(), reports.base) == (result, base)
    assert texts(result["results"][1]["reused"]) == [TIN]
    assert [row["task_id"] for row in base] == [1, 2]


def test_the_number_of_workers_changes_nothing(reports: Reports) -> None:
    assert reports.run("--max_workers", "1", "--knowledge_base_path", "one.jsonl") == 0
    alone = reports.result()
    assert reports.run("--max_workers", "8", "--knowledge_base_path", "eight.jsonl") == 0
    assert reports.result() == alone


def test_knowledge_is_kept_by_model_and_across_sessions(reports: Reports) -> None:
    first, second = reports.rows
    reports.rows = [first]
    assert reports.run() == 0
    reports.rows = [second]
    assert reports.run() == 0
    assert texts(reports.result()["results"][0]["reused"]) == [TIN]
    assert reports.run(file=reports.folder / "claude.jsonl") == 0
    assert reports.result("claude")["results"][0]["reused"] == []


def test_a_unit_missing_from_the_article_is_not_reused_even_if_the_judge_names_it(reports: Reports) -> None:
    reports.rows[1]["article"] = "Lead melts at 327 degrees. Tin melts at 231 degrees."
    assert reports.run() == 0
    assert reports.result()["results"][1]["reused"] == []


def test_the_judge_has_to_confirm_reuse_that_the_words_suggest(reports: Reports) -> None:
    reports.said[2]["reuse"] = {"reused": []}
    assert reports.run() == 0
    assert reports.result()["results"][1]["reused"] == []


@pytest.mark.slow
def test_a_unit_that_the_judge_was_not_shown_is_an_error(reports: Reports, capsys: pytest.CaptureFixture[str]) -> None:
    reports.said[2]["reuse"] = {"reused": ["ffffffffffff"]}
    assert reports.run() == 1
    assert "there is no known unit 'ffffffffffff'" in reports.result()["results"][1]["strategic_error"]
    assert "strategic: 2: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "said", "reason"),
    [
        ("strategic", scores(independence=6), "less than or equal to 5"),
        ("strategic", scores(independence="4"), "independence"),
        (
            "strategic",
            {name: each for name, each in scores().items() if name != "independence"},
            "independence: missing",
        ),
        ("strategic", '{"multi_step_reasoning": {"reason": "', "not JSON"),
        ("knowledge", units(("", 0.5)), "at least 1 character"),
        ("knowledge", units(("Tin.", 3.0)), "less than or equal to 1"),
        ("knowledge", {}, "units: missing"),
    ],
)
def test_a_reply_outside_its_form_is_an_error_and_never_a_middle_score(
    reports: Reports, stage: str, said: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reports.said[1][stage] = said
    reports.said[2]["reuse"] = {"reused": []}
    assert reports.run() == 1
    result = reports.result()
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [2, 1, 1]
    failed, scored = result["results"]
    assert reason in failed["strategic_error"]
    assert failed.keys() == {"id", "prompt", "strategic_error"}
    assert scored["strategic_score"] == pytest.approx(0.76)
    assert [row["task_id"] for row in reports.base] == [2]
    assert reason in capsys.readouterr().err


def test_the_config_limits_the_knowledge_of_a_report(reports: Reports) -> None:
    config = reports.folder / "config.json"
    settings = {"max_knowledge_units_per_task": 1, "min_knowledge_quality_threshold": 0.85}
    config.write_text(
        json.dumps(
            {
                "knowledge_base_settings": settings,
                "strategic_weights": {"task_capability": 1.0, "knowledge_capability": 0.0},
                "system_settings": {"knowledge_base_path": "own.json"},
            }
        )
    )
    assert reports.run("--config", str(config)) == 0
    first, second = reports.result()["results"]
    assert texts(first["created"]) == [TIN]
    assert (second["created"], second["below_quality"]) == ([], 1)
    assert first["strategic_score"] == pytest.approx(0.8)
    assert (reports.folder / "own.json").is_file()


def test_adaptability_to_complexity_needs_annotations_and_quality(reports: Reports) -> None:
    folder = reports.folder / "annotation"
    folder.mkdir()
    for name, content in {
        "domain_expert": {"metals": {"avg_hourly_rate_usd": 100, "avg_task_time_hours": 2}},
        "complexity_level": {"3": {"expert_time_multiplier": 1.0, "difficulty_score": 3}},
        "token_pricing": {},
    }.items():
        (folder / f"{name}_data.json").write_text(json.dumps(content))
    for row in reports.rows:
        row |= {"domain": "metals", "complexity_level": 3}
    reports.rows[1]["domain"] = "metal"
    race, fact = (reports.folder / "results" / part / "gpt" for part in ("race", "fact"))
    race.mkdir(parents=True)
    fact.mkdir(parents=True)
    first = reports.rows[0]
    raced = dict.fromkeys(
        ("comprehensiveness", "insight", "instruction_following", "readability", "overall_score"), 0.5
    )
    (race / "raw_results.jsonl").write_text(json.dumps({"id": 1, "prompt": first["prompt"], **raced}) + "\n")
    page = {"facts": ["Tin is soft."], "url_content": "Soft tin.", "validate_res": [{"idx": 0, "result": "supported"}]}
    cited = {"citations": [], "citations_deduped": {"https://tin.example/": page}}
    (fact / "validated.jsonl").write_text(json.dumps({**first, **cited}) + "\n")
    assert reports.run("--annotation_dir", str(folder)) == 0
    one, other = reports.result()["results"]
    assert one["complexity_adaptability"] == pytest.approx((0.7 * 0.5 + 0.3 * 1) * 3 / 5)
    assert one["reasons"] == {}
    assert other["complexity_adaptability"] is None
    assert "unknown domain 'metal'; did you mean 'metals'?" in other["reasons"]["complexity_adaptability"]


def test_a_row_that_cannot_be_read_is_counted_and_holds_nobody_up(reports: Reports) -> None:
    reports.rows.insert(0, {"id": 0, "prompt": "Nothing?"})
    assert reports.run() == 1
    result = reports.result()
    assert [result[name] for name in ("n_total", "n_scored", "n_failed")] == [3, 2, 1]
    assert "gpt.jsonl:1:" in result["results"][0]["strategic_error"]
    assert texts(result["results"][2]["reused"]) == [TIN]


def test_an_id_with_half_a_surrogate_pair_ends_nobody(reports: Reports) -> None:
    name = "3\ud800"
    reports.rows.append({"id": name, "prompt": "What of zinc\ud800?", "article": "Zinc\ud800."})
    reports.said[case_id(name).removeprefix("research.")] = {"knowledge": units(("Zinc melts.", 0.5))}
    assert reports.run() == 0
    assert reports.result()["n_scored"] == 3
    assert [row["task_id"] for row in reports.base] == [1, 2, "3?"]


def test_an_unwritable_report_is_an_error_before_any_request(
    reports: Reports, capsys: pytest.CaptureFixture[str]
) -> None:
    (reports.folder / "file").write_text("")
    assert reports.run("--output_dir", str(reports.folder / "file" / "out")) == 1
    printed = capsys.readouterr()
    assert "cannot be written: " in printed.err
    assert "requests" not in printed.out


def test_results_contain_the_digest_of_their_article(reports: Reports) -> None:
    assert reports.run() == 0
    digests = [row["article_digest"] for row in reports.result()["results"]]
    assert digests == [row["article"] for row in reports.base] != digests[::-1]


def test_an_invalid_knowledge_base_is_an_error_before_any_request(
    reports: Reports, capsys: pytest.CaptureFixture[str]
) -> None:
    (reports.folder / "base.json").write_text('{"units": []}\n')
    assert reports.run("--knowledge_base_path", "base.json") == 1
    assert "base.json:1:1: " in capsys.readouterr().err
    assert not (reports.folder / "kept").exists()
