"""Scripted judges of research reports: what stands beside the rows is what each stage is answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.ledger import Ledger
from pytest_agentbench.models.routes import resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.packs.research.asking import TEXT, Asking, Unscored, object_schema
from pytest_agentbench.packs.research.stages import QUESTIONS
from pytest_agentbench.records.case import Case, RunnerSpec
from pytest_agentbench.secrets.redaction import Redactor

DEMO = resolve_model("demo", models=ModelsFile(schema_version=1), environ={})
SCRIPT = """
schema_version: 1
research:
  extract: {citations: []}
  clean: "no JSON at all"
  race: ["first", {second: 2}]
researches:
  q2: {extract: [{citations: [1]}, "cut {"]}
"""


def ask(folder, stage: str, row: str = "q1", requests: int = 1, script: str = SCRIPT) -> list[str]:
    """What the judge says at each of the requests."""
    (folder / "reports.demo.yaml").write_text(script)
    case = Case(
        case_id=f"reports.{row}",
        dataset="reports",
        title="t",
        path=folder / "reports.jsonl",
        runner=RunnerSpec(type="predictions"),
    )
    schema = {"type": "json_schema", "json_schema": {"name": f"research_{stage}", "schema": object_schema(a=TEXT)}}

    async def asked() -> list[str]:
        scripts = Scripts()
        scripts.load_beside(case)
        endpoints = Endpoints(scripts=scripts)
        asking = Asking(endpoints.client(DEMO), None, Ledger(QUESTIONS), Redactor({}))
        try:
            return [
                await asking(
                    stage,
                    case.case_id,
                    [{"role": "user", "content": "?"}],
                    schema,
                    lambda text: text,
                    version="1",
                    draw=number,
                )
                for number in range(1, requests + 1)
            ]
        finally:
            await endpoints.close()

    return asyncio.run(asked())


def test_json_is_sent_as_text_and_texts_as_they_are(tmp_path):
    assert ask(tmp_path, "extract") == ['{"citations": []}']
    assert ask(tmp_path, "clean") == ["no JSON at all"]


def test_a_list_has_one_reply_for_each_request(tmp_path):
    assert [json.loads(each) if each[0] == "{" else each for each in ask(tmp_path, "race", requests=2)] == [
        "first",
        {"second": 2},
    ]
    with pytest.raises(Unscored, match="race has 2 replies and this is request 3; add one to"):
        ask(tmp_path, "race", requests=3)


def test_replies_for_a_single_report_take_precedence(tmp_path):
    assert ask(tmp_path, "extract", "q2", requests=2) == ['{"citations": [1]}', "cut {"]
    assert ask(tmp_path, "clean", "q2") == ["no JSON at all"]


def test_the_error_of_an_unscripted_reply_names_the_place_to_add_it(tmp_path):
    with pytest.raises(Unscored, match=r"nothing is scripted for 'validate' of 'reports.q1'; add it under `research:`"):
        ask(tmp_path, "validate")


@pytest.mark.parametrize("script", ["schema_version: 1\nresearch: [1]", "schema_version: 1\nresearches: {q1: 3}"])
def test_a_script_of_another_form_is_refused(tmp_path, script):
    with pytest.raises(ConfigError, match=r"reports.demo.yaml:2:"):
        ask(tmp_path, "extract", script=script)
