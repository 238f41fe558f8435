"""kill -9, many times over one campaign: nothing finished is paid twice, and the report is the one it would have been.

`pytest tests/plugin/test_plugin_kill.py -m slow -s` shows the log: a line for each kill.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from support.bench import LEAN, Bench
from support.fault_endpoint import FaultEndpoint, share_of
from support.stored import list_stored
from test_plugin_store_database import check_layout, query

from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.store.documents import load_evaluation, load_run

ITEMS, AT_ONCE = 250, 8
PROFILE = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "Judged",
    "judges": [{"judge_id": "main", "type": "llm_probe", "model": "judge"}],
    "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
    "aggregation": {"method": "median", "pass_threshold": 0.5},
}
VOLATILE = {"run_id", "reused", "rejudged", "evaluation_reused", "spent_usd", "duration_seconds", "retries"}
VOLATILE_OF_SESSION = {"started_at", "duration_seconds", "command"}
OF_OUTAGES = {"warnings", "rate_limits"}
"""What a session says of an endpoint that fails now and then."""


def item_of(body: dict) -> int:
    """Which item a request is about: the judge is shown the question too."""
    return int(re.search(r"Question (\d+)\?", body["messages"][-1]["content"])[1])


def answer(body: dict) -> dict:
    """The model answers, the judge finds every tenth answer bad."""
    item = item_of(body)
    content = f"Answer {item}."
    if body["model"] == "judge":
        scored = {"score": 2 if item % 10 == 0 else 5 + item % 5, "evidence": ["It says so."]}
        content = json.dumps({"summary": "Seen.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored})
    return {"role": "assistant", "content": content}


@dataclass
class Stored:
    """The items whose run, and whose verdict, is in the store."""

    runs: set[int]
    verdicts: set[int]


@dataclass
class Campaign:
    """A project, the endpoint that its sessions pay, and what they have paid so far."""

    bench: Bench
    endpoint: FaultEndpoint
    options: tuple[str, ...]
    log: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.log.append(line)
        print(line)

    def __post_init__(self) -> None:
        self.bench.rows("cases/many.jsonl", *({"id": f"q{n}", "question": f"Question {n}?"} for n in range(ITEMS)))
        self.bench.write("cases/evaluation_profiles/judged.yaml", PROFILE)
        there = {"base_url": self.endpoint.base_url, "api_key_env": "none"}
        there["prices"] = {"input_per_1m": 100_000, "output_per_1m": 0}  # a request: 1 USD
        self.bench.models({"model_id": "local", **there}, {"model_id": "judge", **there})

    def start(self, output: str, *options: str) -> subprocess.Popen[str]:
        """A session in a process group of its own."""
        command = [sys.executable, "-m", "pytest", *LEAN, "-pno:cacheprovider", "-q", "--model=local", *options]
        command += [f"--agentbench-concurrency={AT_ONCE}", "--agentbench-evaluation-profile=judged"]
        return subprocess.Popen(
            [*command, f"--agentbench-output={output}"],
            cwd=self.bench.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, output: str, *options: str) -> tuple[int, dict]:
        """Exit status and report of a session that nobody disturbs."""
        process = self.start(output, *options)
        said = process.communicate(timeout=300)[0]
        path = self.bench.path / output / "report.json"
        assert path.is_file(), said
        return process.returncode, json.loads(path.read_text())

    def stored(self) -> Stored:
        """What lies in the store now. Raises for a file that is not whole."""
        output = self.bench.path / "outputs"
        runs = [load_run(output, path).case_id for path in list_stored(output, "run_1.json")]
        verdicts = [load_evaluation(output, path).case_id for path in list_stored(output, "final_result_1.json")]
        return Stored(*({int(case_id.partition(".q")[2]) for case_id in ids} for ids in (runs, verdicts)))

    def paid(self, since: int = 0) -> tuple[Counter[int], Counter[int]]:
        """How often the model and the judge were asked about each item, and did not refuse to answer."""
        paid = [request for request in self.endpoint.requests[since:] if request.fault == "ok"]
        asked = [(request.body["model"], item_of(request.body)) for request in paid]
        return tuple(Counter(item for name, item in asked if name == model) for model in ("local", "judge"))

    def kill(self, number: int, moment: random.Random) -> None:
        """One session that dies at a random moment; checks what it paid, and writes a line of the log."""
        before, asked_before = self.stored(), len(self.endpoint.requests)
        early = moment.random() < 0.2  # while it starts or collects, or soon after
        longest = moment.uniform(0, 4) if early else math.inf
        more, pause = moment.randint(1, 20), moment.uniform(0, 0.05)  # few enough that no fast machine gets to the end
        begun = time.monotonic()
        with self.start("outputs", *self.options) as process:
            while len(self.endpoint.requests) < asked_before + more and time.monotonic() < begun + longest:
                with suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"it ended by itself, {process.wait(0.002)}: {process.communicate()[0]}")
            with suppress(subprocess.TimeoutExpired):
                process.wait(pause)
            after = time.monotonic() - begun
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)  # returns once every process of the group has let go of its output
        stored = self.stored()
        self._check(before, stored, *self.paid(asked_before))
        asked, judged = self.paid()
        self.note(
            f"kill {number:2} after {after:5.2f} s: {len(stored.runs):3} runs and {len(stored.verdicts):3} verdicts "
            f"stored, {asked.total():3} + {judged.total():3} requests so far"
        )

    def _check(self, before: Stored, stored: Stored, asked: Counter[int], judged: Counter[int]) -> None:
        assert before.runs <= stored.runs
        assert before.verdicts <= stored.verdicts
        assert not before.runs & asked.keys(), "a finished run was paid twice"
        assert not before.verdicts & judged.keys(), "a finished verdict was paid twice"
        assert {*asked.values(), *judged.values()} <= {1}
        lost = (asked.keys() - stored.runs) | (judged.keys() - stored.verdicts)
        assert len(lost) <= AT_ONCE, "more was lost than was in flight"


def comparable(report: dict) -> dict:
    """The report without what depends on when and how often the session was started."""
    volatile = VOLATILE_OF_SESSION | OF_OUTAGES
    session = {name: value for name, value in report["session"].items() if name not in volatile}
    parts = {name: [_steady(row) for row in report[name]] for name in ("models", "runs")}
    return {**report, **parts, "session": session, "totals": _steady(report["totals"])}


def _steady(row: dict) -> dict:
    return {name: value for name, value in row.items() if name not in VOLATILE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "kills", "options", "failing"),
    [(1, 8, (), 0.0), (2, 3, ("-n2",), 0.0), pytest.param(3, 29, (), 0.2, marks=pytest.mark.full)],
    ids=["serial", "workers", "failing endpoint"],
)
def test_a_campaign_killed_many_times_pays_nothing_twice_and_ends_with_the_same_report(
    bench, seed, kills, options, failing, request
):
    moment = random.Random(seed)
    with FaultEndpoint(latency=0.05, answer=answer) as endpoint:
        campaign = Campaign(bench, endpoint, options)
        status, undisturbed = campaign.finish("undisturbed")
        assert len(endpoint.requests) == 2 * ITEMS
        endpoint.requests.clear()
        endpoint.choose = share_of(failing, ("429", "503", "500"), seed=seed)  # which are not billed
        campaign.note(f"seed {seed}, {' '.join(options) or 'serial'}")
        begun = time.monotonic()
        for number in range(1, kills + 1):
            campaign.kill(number, moment)
        stored, asked_before = campaign.stored(), len(endpoint.requests)
        assert 0 < len(stored.runs) < ITEMS
        last_status, report = campaign.finish("outputs", *options)
        everything = set(range(ITEMS))
        asked, judged = campaign.paid(asked_before)
        assert asked == dict.fromkeys(everything - stored.runs, 1)
        assert judged == dict.fromkeys(everything - stored.verdicts, 1)
        paid = [counted.total() for counted in campaign.paid()]
    assert (last_status, comparable(report)) == (status, comparable(undisturbed))
    assert report["totals"]["reused"] == len(stored.runs)
    assert report["totals"]["rejudged"] == len(stored.runs - stored.verdicts)
    assert report["totals"]["spent_usd"] == {"run": asked.total(), "judge": judged.total()}
    assert campaign.stored() == Stored(everything, everything)
    assert query(bench.path / "outputs", "PRAGMA integrity_check") == [("ok",)]
    check_layout(bench.path / "outputs")
    campaign.note(
        f"{kills} kills of a campaign of {ITEMS} items in "
        f"{time.monotonic() - begun:.0f} s; {paid[0]} requests for {ITEMS} runs and {paid[1]} for {ITEMS} verdicts, "
        f"none of them after its result was stored; the last session made {asked.total()} runs"
    )
    request.node.user_properties.append(("log", "\n".join(campaign.log)))  # JUnit's file has it too
