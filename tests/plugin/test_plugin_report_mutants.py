"""Thousands of damaged copies of a session's report.json and journal: each is read, or refused in one clear message."""

from __future__ import annotations

import copy
import json
import re
from random import Random

import pytest

from pytest_agentbench.cli import main
from pytest_agentbench.cli.live_session import LiveData
from pytest_agentbench.reports.journal import FOLDER

AGENT = """
import pytest

@pytest.fixture
def agentbench_runner():
    def agent(case):
        if case.case_id.endswith("broken"):
            raise OSError("no network")
        return "Paris"
    return agent
"""
ROWS = (
    {"id": "fr", "question": "The capital of France?", "answer": "Paris", "metadata": {"level": 1, "easy": True}},
    {"id": "jp", "question": "The capital of Japan?", "answer": "Tokyo", "metadata": {"level": 2, "easy": False}},
    {"id": "broken", "question": "The capital of Peru?", "answer": "Lima"},
)
SCRIPT = {"schema_version": 1, "answers": {row["id"]: "Paris" for row in ROWS}, "judgements": {"fr": True, "jp": False}}
MUTANTS = 2_000
VALUES = (
    None,
    True,
    0,
    -1,
    -(10**18),
    10**18,
    10**99,
    10**101,
    -0.5,
    1e-320,
    1e99,
    float("nan"),
    float("inf"),
    "",
    "x" * 100_000,
    "\ud800\x1b[31m",
    "2026-13-77T99:00:00",
    "../../../etc/passwd",
    [],
    {},
    [[]],
    {"": None},
    [None] * 50,
)


def list_places(value, path=()):
    """Return the paths to all values in a document."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for name, each in below for place in list_places(each, (*path, name))]


def nest(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


def mutate(document, random):
    """Return a copy with one to three mistakes."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        # Few places are in the head of a document, and most in its runs: both count alike
        top = random.choice([*document] or [None])
        places = [place for place in list_places(document) if place and place[0] == top]
        if not places:
            break
        *above, last = random.choice(places)
        holder = document
        for name in above:
            holder = holder[name]
        match random.choice(("delete", "replace", "replace", "retype", "lengthen", "add", "nest", "swap")):
            case "delete":
                del holder[last]
            case "replace":
                holder[last] = random.choice(VALUES)
            case "retype":
                found = holder[last]
                holder[last] = (
                    [found] if random.random() < 0.5 else str(found) if random.random() < 0.5 else {"x": found}
                )
            case "lengthen":
                if isinstance(holder[last], list):
                    holder[last] = holder[last] * random.choice((0, 2, 3)) + holder[last][:1]
                elif isinstance(holder[last], int | float):
                    holder[last] = holder[last] * random.choice((-1, 1000, 1e90))
                elif isinstance(holder[last], str):
                    holder[last] = holder[last] * 1000
            case "add":
                (holder[last] if isinstance(holder[last], dict) else document)["no_such_field"] = random.choice(VALUES)
            case "nest":
                holder[last] = nest(random.choice((5, 200)))
            case "swap":
                other = document
                for name in random.choice(places):
                    other = other[name]
                holder[last] = copy.deepcopy(other)
    return document


@pytest.fixture
def rich(bench, monkeypatch):
    """Return a report with votes, labels, a comparison, checks, metrics, repetitions and errors."""
    bench.models(
        {"model_id": "demo", "requested_model": "demo", "scripted": True, "judge": "demo"},
        {"model_id": "other", "requested_model": "other", "scripted": True, "judge": "demo"},
    )
    bench.rows("cases/capitals.jsonl", *ROWS)
    bench.write("cases/capitals.demo.yaml", SCRIPT)
    bench.write("cases/capitals.other.yaml", SCRIPT)
    bench.case("one")
    bench.case("gone", runner={"type": "no_such_runner"})
    bench.write("cases/bad/test.yaml", "schema_version: 1\ncase_id: bad\nno_such_field: 1\n")
    options = ("--model=demo", "--model=other", "--agentbench-metric=llm_judgement>=1", "--agentbench-repetitions=2")
    first = bench.run(*options, "--agentbench-json=baseline.json")
    baseline = json.loads((bench.path / "baseline.json").read_text())
    labels = [
        {
            "schema_version": 1,
            "annotator": "ann",
            "nodeid": row["nodeid"],
            "run_id": row["run_id"],
            "rubric": row["judged"][0]["rubric"],
            "judges": {judged["by"]: judged["judge"] for judged in row["judged"]},
            "verdict": "passed",
            "at": "2026-01-02T03:04:05Z",
        }
        for row in baseline["runs"]
        if row.get("judged")
    ]
    assert labels, first.text
    bench.rows("human.jsonl", *labels)
    bench.run(*options, "--agentbench-json=report.json", "--agentbench-compare=baseline.json")
    for name in ("bad", "gone"):  # `review` reads no folder with mistakes
        (bench.path / f"cases/{name}/test.yaml").unlink()
    monkeypatch.chdir(bench.path)
    report = json.loads((bench.path / "report.json").read_text())
    assert report["comparison"]
    assert report["human"]
    assert {row["outcome"] for row in report["runs"]} >= {"passed", "failed"}
    return report


COMMANDS = (
    ["report", "mutant.json"],
    ["report", "mutant.json", "--html", "page.html", "--markdown", "page.md", "--csv", "rows.csv"],
    ["report", "mutant.json", "--json", "again.json"],
    ["merge", "mutant.json"],
    ["merge", "mutant.json", "shard.json", "-o", "merged.json"],
    ["compare", "mutant.json", "baseline.json"],
    ["compare", "baseline.json", "mutant.json", "--json"],
    ["compare", "mutant.json", "mutant.json", "--html", "page.html"],
    ["review", "mutant.json", "--annotator", "me"],
)


def damage(text, random):
    """Return JSON with a mistake that is none of its values, half of the time."""
    at = random.randrange(len(text))
    match random.randrange(12):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + "[" * 100_000 + text[at:]
        case 2:
            return text.replace(":1", ":" + "9" * random.choice((50, 400, 5_000)))
        case 3:
            return text[:at] + random.choice('\0{}[],:\\"\ud800') + text[at + 1 :]
        case 4:
            return "[" * 100_000 + text
    return text


@pytest.mark.full
def test_a_mutant_of_a_report_is_read_or_refused_with_its_file_and_field(rich, capsys, monkeypatch, bench):
    (bench.path / "shard.json").write_text(json.dumps({**rich, "runs": [], "cases": []}))
    monkeypatch.setattr("builtins.input", lambda *_: (_ for _ in ()).throw(EOFError))
    wrong, refused = [], 0
    for seed in range(MUTANTS):
        random = Random(seed)
        text = damage(json.dumps(mutate(rich, random)), random)
        (bench.path / "mutant.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        capsys.readouterr()
        try:
            code = main(COMMANDS[seed % len(COMMANDS)])
        except (Exception, SystemExit) as error:
            wrong.append((seed, repr(error)[:300]))
            continue
        printed = capsys.readouterr().err
        refused += bool(printed)
        if printed and (code == 0 or not re.match(r"(agentbench \w+: )?mutant\.json: ", printed)):
            wrong.append((seed, printed[:300]))
    assert not wrong, "\n".join(f"{COMMANDS[seed % len(COMMANDS)]} {seed}: {what}" for seed, what in wrong[:40])
    assert MUTANTS // 4 < refused < MUTANTS


@pytest.mark.slow
def test_a_mutant_of_a_journal_is_followed_and_reported(rich, capsys, bench):
    [journal] = (bench.path / "outputs" / FOLDER).glob("*.journal")
    lines = journal.read_text().splitlines()
    for seed in range(MUTANTS // 10):
        random = Random(seed)
        at = random.randrange(len(lines))
        text = damage(json.dumps(mutate(json.loads(lines[at]), random)), random)
        mutant = [*lines[:at], *[text] * random.choice((0, 1, 1, 2)), *lines[at + 1 :]]
        journal.write_bytes("\n".join(mutant).encode("utf-8", "surrogatepass") + b"\n")
        LiveData(bench.path / "outputs").data(None)
        capsys.readouterr()
        if main(["report", str(journal)]) != 0:
            assert f"{journal}: " in capsys.readouterr().err
