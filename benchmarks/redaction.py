"""What a look for secrets costs: `python benchmarks/redaction.py [--only NAME]`, half a minute.

CPU of this process; the least of several rounds counts, for other programs only ever add to a cost. Records and texts
hold no secret, as nearly always. The peer writes them as JSON; hostile texts are compared with ones of a quarter of
their length: four times as long is in proportion, sixteen times would be squared.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import string
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from tables import Measured, Section, print_table

from pytest_agentbench.records.evaluation import Evaluation, MetricResult
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.secrets.redaction import Redactor

ENVIRON = {
    "OPENAI_API_KEY": "sk-proj-" + "a1B2" * 10,
    "GITHUB_TOKEN": "ghp_" + "a" * 36,
    "DB_PASSWORD": "hunter2-hunter2",
}
REDACTOR = Redactor(ENVIRON)
SIZE = 10_000
WORDS = "the agent looks at a file and says what it found in there with some numbers like 42 or 3.14"

HOSTILE = (
    *("-eyJ", ".eyJaaaaaaaaaa", "sk-", "-glpat-", "-AIza", "-M1", "-1234567890:", "-xoxb-1-", "-tskey-a-", "a1-", "a"),
    *("https://hooks.slack.com/services/Ta1/B", "AccountKey=a1", "aws key 'a1", "Bearer a.", "Basic a", "deadbeef"),
    *("://a:1", "://:a@", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A", "Private-Lines: 1 ", "awskey='" + "a1" * 20),
    *("\\", "%41", "%25", "&amp;", "&#38;", "\\u005c", "a" * 45 + "\n", "a" * 45 + "\\n", '"', "=", ":", '{"a":', "["),
)


def measure_records() -> Iterator[Measured]:
    """Yield what records cost that a run of one turn leaves."""
    rng = random.Random(1)
    run = RunArtifact(
        run_id=rng.randbytes(16).hex(),
        case_id="items.q1",
        run_profile_id="default",
        runner_type="callable",
        model={"model_id": "demo", "requested_model": "demo", "label": None, "scripted": True},
        repetition=1,
        fingerprint=rng.randbytes(32).hex(),
        status="success",
        started_at=datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        duration_seconds=0.000035453,
        trace=(FinalOutputEvent(sequence=0, at=0.0000241, content="Jupiter is the largest planet."),),
    )
    evaluation = Evaluation(
        case_id="items.q1",
        run_id=run.run_id,
        run_fingerprint=run.fingerprint,
        fingerprint=rng.randbytes(32).hex(),
        evaluation_profile_id="default",
        metrics=(MetricResult(name="exact_match", score=1.0, threshold=1.0, passed=True),),
        outcome="passed",
    )
    for name, record in (("a run of one turn", run), ("its evaluation", evaluation)):
        ours, peer = time_call(partial(REDACTOR.dump, record)), time_call(record.model_dump_json)
        yield compare(f"{name}: `dump`", ours, peer, "model_dump_json", 4)
        document = record.model_dump_json()
        yield compare(f"{name}: `json`", time_call(partial(REDACTOR.json, document)), peer, "model_dump_json", None)


def measure_texts() -> Iterator[Measured]:
    """Yield what texts of several kinds cost."""
    rng = random.Random(1)
    rows = (
        {"id": rng.randbytes(16).hex(), "name": "a name", "at": "2026-11-21T10:11:12.123456+00:00"} for _ in range(99)
    )
    digits = rng.randbytes(SIZE).hex()
    texts = {
        "prose": " ".join(rng.choices(WORDS.split(), k=SIZE)),
        "hex": digits,
        "lines of hex": "\n".join(digits[at : at + 64] for at in range(0, SIZE, 64)),
        "base64": base64.b64encode(rng.randbytes(SIZE)).decode(),
        "word characters": "".join(rng.choices(string.ascii_letters + string.digits + "_", k=SIZE)),
        "JSON": json.dumps([*rows]),
        "JSON in JSON": json.dumps(json.dumps({digits[at : at + 16]: "a word" for at in range(0, SIZE, 32)})),
    }
    for name, text in texts.items():
        shown = text[:SIZE]
        ours, peer = time_call(partial(REDACTOR.text, shown)), time_call(partial(json.dumps, shown))
        yield compare(f"{SIZE // 1000} kB of {name}", ours, peer, "json.dumps", None)


def measure_hostile() -> Iterator[Measured]:
    """Yield how much longer a text of four times the length takes, of those that were made to take long."""
    for part in HOSTILE:
        short, long = (part * (size // len(part)) for size in (64_000, 256_000))
        peer, ours = (time_call(partial(REDACTOR.text, text), rounds=3, calls=1) for text in (short, long))
        yield compare(f"256 kB of {json.dumps(part[:40])}", ours, peer, "64 kB", 8)


def time_call(call: Callable[[], object], rounds: int = 7, calls: int = 100) -> float:
    """Return the CPU seconds of a call."""
    call()
    least = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(calls):
            call()
        least = min(least, (time.process_time() - begun) / calls)
    return least


def compare(scenario: str, ours: float, peer: float, who: str, limit: float | None) -> Measured:
    ratio = ours / peer
    target = "" if limit is None else f"≤ {limit:g} ×"
    met = limit is None or ratio <= limit
    return Measured(scenario, f"{1e6 * ours:,.1f} µs", f"{1e6 * peer:,.1f} µs ({who})", f"{ratio:.2f}", target, met)


SECTIONS = {
    "records": Section(measure_records),
    "texts": Section(measure_texts),
    "hostile": Section(measure_hostile),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, help="one section")
    print_table(SECTIONS, parser.parse_args().only, more="ratio")
