"""The table of stages: what each row promises, its module has."""

from __future__ import annotations

import argparse

import pytest

from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, ResearchScores
from pytest_agentbench.packs.research.stages import ANNOTATED, JUDGED, PARTS, QUESTIONS, SCORES, STAGES, Stage


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_module_has_the_functions_that_its_row_requires(stage: Stage) -> None:
    module = stage.load()
    subparsers = argparse.ArgumentParser().add_subparsers()
    module.add_parser(subparsers)
    assert (stage.command or stage.name) in subparsers.choices
    functions = ["score_reports", "grade_report", "list_metrics", "keep_evidence"]
    for name in ["run", *(functions if stage.name in PARTS else ["prepare_queries"])]:
        assert callable(getattr(module, name)), name


def test_parts_are_the_rows_that_score_reports() -> None:
    assert tuple(stage.name for stage in STAGES if stage.metrics) == PARTS
    for stage in STAGES:
        assert stage.main_metric in (*stage.metrics, "")
        assert stage.unbounded | stage.lower_is_better <= {*stage.metrics}
        assert bool(stage.metrics) == bool(stage.folder) == bool(stage.main_metric)


def test_the_groups_of_stages_follow_from_the_table() -> None:
    assert ANNOTATED == ("efficiency", "strategic", "interaction", "poet")
    assert JUDGED == ("race", "fact", "strategic", "poet")
    assert QUESTIONS[:5] == ("select", "weights", "criteria", "clean", "race")
    assert len(QUESTIONS) == len({*QUESTIONS})
    assert {f"race_{name}" for name in RACE_DIMENSIONS} < {*SCORES["race"]}
    assert {"criteria", "statements", "strategic", "knowledge", "summary"} < ResearchScores.model_fields.keys()
