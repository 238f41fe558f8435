"""Sessions that record cassettes at an endpoint on loopback, and replay them."""

from __future__ import annotations

import itertools
import json
import shutil
from contextlib import contextmanager

from support.fault_endpoint import FaultEndpoint

RECORD, REPLAY, AUTO = (f"--agentbench-cassettes={mode}" for mode in ("record", "replay", "auto"))
PRICES = {"input_per_1m": 100_000, "output_per_1m": 200_000}
SAME = ("outcome", "status", "final_score", "metrics", "judge", "usage", "cost_usd", "duration_seconds", "checks")
"""Fields of a run that are equal in a recording and its replay."""


def draws(body):
    """Answer each request with another text or verdict."""
    number = next(draws.numbers)
    if "response_format" in body:
        return {"role": "assistant", "content": verdict(body, number)}
    return {"role": "assistant", "content": f"Paris, draw {number}"}


def verdict(body, number):
    if "correct" in json.dumps(body["response_format"]):
        return json.dumps({"reason": f"Vote {number}.", "correct": number % 3 != 0})
    score = {"score": number % 5 + 5, "evidence": []}
    names = ("task", "process", "autonomy", "closeness", "efficiency", "spark")
    return json.dumps({"summary": f"Verdict {number}.", "dimensions": dict.fromkeys(names, score), "overall": score})


@contextmanager
def drawing_endpoint():
    """Serve an endpoint whose every answer is another one."""
    draws.numbers = itertools.count(1)
    with FaultEndpoint(answer=draws) as endpoint:
        yield endpoint


def model(bench, endpoint, *others, **fields):
    entry = {"base_url": endpoint.base_url, "api_key_env": "BENCH_KEY", "prices": PRICES}
    bench.models({"model_id": "gpt", **entry, **fields}, {"model_id": "judge", **entry}, *others)


def profile(bench, **fields):
    fields = {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", **fields}
    bench.write("cases/evaluation_profiles/judged.yaml", fields)
    return "--agentbench-evaluation-profile=judged"


JUDGED = {
    "judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge"}],
    "judge_runs": [{"judge_run_id": "one", "judge_id": "j", "repetitions": 3}],
}


def facts(finished):
    return {name: {key: row[key] for key in SAME} for name, row in finished.runs.items()}


def cassettes(bench):
    return {
        str(path.relative_to(bench.path / "cases")): path
        for path in (bench.path / "cases").rglob("cassettes/**/*.yaml")
    }


def gone(bench, endpoint, monkeypatch):
    """Remove the key and all results, and forget the requests."""
    endpoint.requests.clear()
    monkeypatch.delenv("BENCH_KEY")
    shutil.rmtree(bench.path / "outputs")
