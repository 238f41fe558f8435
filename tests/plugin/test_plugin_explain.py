"""Flips of five causes are planted in whole sessions, and `agentbench explain` attributes each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from support.bench import Bench, check
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.records.base import DIMENSIONS

CASES = [f"c{number}" for number in range(5)]
"""The cases that each planted change flips."""
ANSWERS = {"p": "Paris", "f": "Rome"}


@dataclass
class Endpoint(FaultEndpoint):
    """An endpoint of a model and a judge. `says` is the next answer, `version` the name of the model that answers."""

    says: str = "Paris"
    score: int = 9
    served: dict[str, str] = field(default_factory=dict)

    def _completion(self, body: dict, fault: str) -> dict:
        return {**super()._completion(body, fault), **({} if "response_format" in body else self.served)}

    def __post_init__(self) -> None:
        self.answer = self._answer

    def _answer(self, body: dict) -> dict:
        if "response_format" in body:  # it is the judge that is asked
            scored = {"score": self.score, "evidence": []}
            verdict = {"summary": "So.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
            return {"role": "assistant", "content": json.dumps({**verdict, "expectations": []})}
        return {"role": "assistant", "content": self.says}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as served:
        yield served


@pytest.fixture
def project(bench: Bench, endpoint: Endpoint) -> Bench:
    write_models(bench, endpoint)
    write_cases(bench)
    write_judge(bench, "judge")
    bench.profile("plain")
    return bench


def write_models(bench: Bench, endpoint: Endpoint, **parameters: float) -> None:
    at = {"base_url": endpoint.base_url, "api_key_env": "none"}
    names = ("judge", "other")
    bench.models(
        {"model_id": "small", "requested_model": "small", "parameters": parameters, **at},
        *({"model_id": name, "requested_model": name, **at} for name in names),
    )


def write_cases(bench: Bench, question: str = "The capital of France?", pattern: str = "Paris", **fields) -> None:
    for case_id in CASES:
        messages = [{"role": "user", "content": f"{question} ({case_id})"}]
        checks = [check("capital", kind="regex_match", pattern=pattern)]
        bench.case(case_id, **{"input": {"messages": messages}, "deterministic_checks": checks, **fields})


def write_judge(bench: Bench, model: str) -> None:
    judge = {"judge_id": "main", "type": "llm_probe", "model": model}
    profile = {"evaluation_profile_id": "judged", "title": "Judged", "judges": [judge]}
    profile["judge_runs"] = [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}]
    bench.write("cases/evaluation_profiles/judged.yaml", {"schema_version": 1, **profile})


Plant = Callable[[Bench, Endpoint], None]


@dataclass(frozen=True)
class Planted:
    """A change between two sessions. `before` prepares the first one.

    `args` are options of both sessions, `later` of the second one.
    """

    cause: str
    plant: Plant
    evidence: str
    before: Plant = lambda bench, endpoint: None
    args: tuple[str, ...] = ()
    later: tuple[str, ...] = ("--agentbench-no-reuse",)


def set_endpoint(**fields) -> Plant:
    return lambda bench, endpoint: [setattr(endpoint, name, value) for name, value in fields.items()]


def both(*plants: Plant) -> Plant:
    return lambda bench, endpoint: [plant(bench, endpoint) for plant in plants]


WRONG = set_endpoint(says="Rome")
JUDGED = ("--agentbench-evaluation-profile=judged",)


def drop_checks(bench: Bench, endpoint: Endpoint) -> None:
    """Let the judge alone decide."""
    write_cases(bench, deterministic_checks=None)


PLANTED = {
    "model parameter": Planted(
        "agent", both(WRONG, lambda bench, endpoint: write_models(bench, endpoint, temperature=1)), "temperature"
    ),
    "run profile": Planted(
        "agent",
        both(WRONG, lambda bench, endpoint: bench.profile("plain", runner_defaults={"max_turns": 3})),
        "max_turns",
        args=("--agentbench-run-profile=plain",),
    ),
    "question": Planted(
        "case", both(WRONG, lambda bench, endpoint: write_cases(bench, "The capital of Italy?")), "Italy"
    ),
    "expected answer": Planted("case", lambda bench, endpoint: write_cases(bench, pattern="Rome"), "Rome", later=()),
    "another judge": Planted(
        "judge",
        both(set_endpoint(score=2), lambda bench, endpoint: write_judge(bench, "other")),
        "other",
        before=drop_checks,
        args=JUDGED,
        later=(),
    ),
    "same judge": Planted(
        "judge", set_endpoint(score=2), "same run", before=drop_checks, args=JUDGED, later=("--agentbench-rejudge",)
    ),
    "refusal": Planted("provider", set_endpoint(choose=lambda message, nth: "403"), "You may not use this model"),
    "model version": Planted(
        "provider",
        set_endpoint(says="Rome", served={"system_fingerprint": "fp_2"}),
        "fp_2",
        before=set_endpoint(served={"system_fingerprint": "fp_1"}),
    ),
    "another draw": Planted("chance", WRONG, "unknown"),
    "another draw of three": Planted("chance", WRONG, "p = 0.1", args=("--agentbench-repetitions=3",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_flip_is_attributed_to_its_cause(project, endpoint, capsys, name):
    """Ten changes of five cases each: all 50 flips are attributed."""
    planted = PLANTED[name]
    planted.before(project, endpoint)
    command = ("--model=small", *planted.args, "cases")
    first = project.run("--agentbench-json=a.json", *command)
    assert first.exit == 0, first.text
    planted.plant(project, endpoint)
    second = project.run("--agentbench-json=b.json", *planted.later, *command)
    assert second.exit == 1
    capsys.readouterr()
    for case_id in CASES:
        assert main(["explain", case_id, "a.json", "b.json", "--json"]) == 0
        (explanation,) = json.loads(capsys.readouterr().out)
        assert explanation["causes"] == [planted.cause], explanation
        assert main(["explain", case_id, "a.json", "b.json"]) == 0
        assert planted.evidence in capsys.readouterr().out
