"""Scripted verdicts on answers: what stands beside the cases is what a judge says, offline and served."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging.asking import Asked
from pytest_agentbench.judging.correctness import answer_messages, ask_vote
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.completions_http import scripted_app
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.routes import resolve_model
from pytest_agentbench.models.script_trees import ScriptTree
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import Model
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.rows import read_rows, row_case

DEMO = resolve_model("demo", models=ModelsFile(schema_version=1), environ={})
SCRIPT = """
schema_version: 1
answers: {fr: Paris.}
default: No idea.
judgements:
  fr: {correct: true, reason: The same city.}
  jp: [true, {correct: false, reason: Unsure.}]
"""


def scripts_of(folder: Path, script: str = SCRIPT) -> Scripts:
    """Loaded beside the rows, as a session does it."""
    (folder / "capitals.jsonl").write_text(
        "".join(
            json.dumps({"id": key, "question": f"The capital of {name}?", "answer": "x"}) + "\n"
            for key, name in (("fr", "France"), ("jp", "Japan"), ("it", "Italy"))
        )
    )
    (folder / "capitals.demo.yaml").write_text(script)
    dataset, scripts = open_dataset(folder / "capitals.jsonl", ConfigRoot(folder)), Scripts()
    for row in read_rows(dataset):
        assert isinstance(row, Row)
        scripts.load_beside(row_case(dataset, row))
    return scripts


def vote(case_id: str, scripts: Scripts | None = None, repetition: int = 1, compat=None, model: Model = DEMO) -> Asked:
    names = {"fr": "France", "jp": "Japan", "it": "Italy"}
    messages = answer_messages(f"The capital of {names[case_id]}?", "x", "The agent's answer.", compat)

    async def main() -> Asked:
        endpoints = Endpoints(scripts=scripts, backoff=Backoff(first=0.001))
        try:
            return await ask_vote(
                endpoints.client(model),
                messages,
                case_id=f"capitals.{case_id}",
                repetition=repetition,
                compat=compat,
                backoff_seconds=0.001,
            )
        finally:
            await endpoints.close()

    return asyncio.run(main())


@contextmanager
def served(scripts: Scripts):
    """A model whose endpoint is the app on a real loopback server: it is not known to be scripted."""
    import uvicorn

    config = uvicorn.Config(scripted_app(scripts), port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Model(model_id="served", requested_model="any", base_url=f"http://127.0.0.1:{port}/v1", api_key_env=None)
    finally:
        server.should_exit = True
        thread.join(10)


def test_a_row_has_its_verdict(tmp_path):
    asked = vote("fr", scripts_of(tmp_path))
    assert (asked.verdict.correct, asked.verdict.reason) == (True, "The same city.")
    assert asked.usage.cost_usd == 0


def test_a_list_has_one_vote_for_each_repetition(tmp_path):
    scripts = scripts_of(tmp_path)
    first, second = (vote("jp", scripts, n).verdict for n in (1, 2))
    assert (first.correct, second.correct, second.reason) == (True, False, "Unsure.")
    third = vote("jp", scripts, 3)
    assert third.status == "provider_error"
    assert "has 2 votes and this is repetition 3" in third.error
    assert vote("fr", scripts, 3).verdict.correct  # one vote holds for all


def test_without_a_verdict_it_says_where_to_add_one(tmp_path):
    asked = vote("it", scripts_of(tmp_path))
    assert "no scripted judgement for case 'capitals.it'; add it under `judgements:` to" in asked.error
    assert "capitals.demo.yaml" in asked.error


def test_the_original_gets_one_word(tmp_path):
    scripts = scripts_of(tmp_path)
    assert vote("fr", scripts, compat="v1").verdict.reason == "the judge replied 'Correct'"
    assert vote("jp", scripts, 2, compat="v1").verdict.reason == "the judge replied 'Incorrect'"


def test_a_judge_can_break_its_contract_on_purpose(tmp_path):
    asked = vote("fr", scripts_of(tmp_path, "schema_version: 1\njudgements: {fr: {content: Hm.}}"))
    assert (asked.status, asked.attempts) == ("invalid_output", 3)


@pytest.mark.parametrize(
    "wrong", ["{fr: yes please}", "{fr: []}", "{fr: {reason: r}}", "{fr: {correct: true, content: x}}", "[true]"]
)
def test_an_invalid_judgement_is_an_error_of_the_script(tmp_path, wrong):
    with pytest.raises(ConfigError, match=r"capitals\.demo\.yaml:2:\d+: .*judgements"):
        scripts_of(tmp_path, f"schema_version: 1\njudgements: {wrong}")


def test_a_row_that_only_a_judge_knows_has_the_default_answer(tmp_path):
    scripts = scripts_of(tmp_path)
    script = scripts.find("capitals.jp", [{"role": "user", "content": "The capital of Japan?"}])
    assert script.replies[0].content == "No idea."


@pytest.mark.slow
def test_a_server_knows_the_case_by_its_question(tmp_path):
    scripts_of(tmp_path)
    scripts = ScriptTree(tmp_path)
    assert scripts.problems == []
    with served(scripts) as model:
        assert vote("fr", model=model).verdict.reason == "The same city."
        assert vote("jp", model=model).verdict.correct
        assert vote("jp", model=model, compat="v1").verdict.reason == "the judge replied 'Correct'"
        assert "no scripted judgement" in vote("it", model=model).error
