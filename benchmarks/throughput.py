"""What a case costs, as ratios to peers in the same run: `python benchmarks/throughput.py [--quick] [--only NAME]`.

How it is measured: `processes.py`. `check.py` keeps what is measured here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from processes import (
    AGENT,
    OURS,
    PLAIN,
    PLAIN_TESTS,
    Bench,
    Scenarios,
    compare,
    endpoint,
    models,
    parser_of,
    rows,
    script,
)
from record import Line

COLLECT = ("--collect-only", "-qq")

PLAIN_COLLECTOR = """
import json
import pytest, yaml

class Item(pytest.Item):
    def __init__(self, *, case, **kw):
        super().__init__(**kw)
        self.case = case

    def runtest(self):
        assert self.case

class Rows(pytest.File):
    def collect(self):
        with self.path.open() as file:
            for line in file:
                case = json.loads(line)
                yield Item.from_parent(self, name=case["id"], case=case)

class Folder(pytest.File):
    def collect(self):
        case = yaml.load(self.path.read_bytes(), Loader=yaml.CSafeLoader)
        yield Item.from_parent(self, name=case["case_id"], case=case)

def pytest_collect_file(file_path, parent):
    kind = {".jsonl": Rows, ".yaml": Folder}.get(file_path.suffix)
    return kind and kind.from_parent(parent, path=file_path)
"""

GATHER = """
import asyncio, json, pathlib, sys
from openai import AsyncOpenAI

async def main(base_url, concurrency):
    client, free = AsyncOpenAI(base_url=base_url, api_key="none"), asyncio.Semaphore(concurrency)

    async def ask(row):
        async with free:
            messages = [{"role": "user", "content": row["question"]}]
            reply = await client.chat.completions.create(model="demo", messages=messages)
            assert reply.choices[0].message.content == row["answer"]

    await asyncio.gather(*(ask(json.loads(line)) for line in pathlib.Path("items.jsonl").open()))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

WRONG = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    async def add(case):
        number = int(case.messages[-1].content.split()[2])
        return str(number + (1 if number % 5 else 2))

    return add
"""

IMPORT = """
import pytest, time
begun = time.perf_counter()
import pytest_agentbench.plugin
print(time.perf_counter() - begun)
"""

CASE = """schema_version: 1
case_id: {name}
title: The successor of {number}
runner:
  type: llm_probe
input:
  messages:
    - role: user
      content: What is {number} + 1?
deterministic_checks:
  - check_id: answer
    declarative:
      kind: regex_match
      pattern: ^{answer}$
tags: [smoke]
"""

SCENARIOS = Scenarios()


def plain_project(bench: Bench, count: int) -> Path:
    """Return a project with a test for each of so many rows."""
    return bench.project(f"plain-{count}", {"items.jsonl": rows(count), "test_rows.py": PLAIN_TESTS})


def agent_project(bench: Bench, count: int, kind: str = "async def") -> Path:
    """Return a project in which an agent is asked as many."""
    files = {"items.jsonl": rows(count), "conftest.py": AGENT.format(kind=kind)}
    return bench.project(f"{kind.replace(' ', '-')}-{count}", files)


@SCENARIOS.add()
def run(bench: Bench) -> Iterator[Line]:
    """10,000 items by an agent that answers at once, and by the scripted model."""
    count = 10_000 // bench.scale
    demo = {"items.jsonl": rows(count), "items.demo.yaml": script(count)}
    scripted = bench.project("scripted", demo | {"models.yaml": models(model_id="demo", scripted=True)})
    plain, agent, client = bench.alternate(
        (PLAIN, plain_project(bench, count)),
        (OURS, agent_project(bench, count)),
        ((*OURS, "--model=demo"), scripted),
    )
    for name, cost, target in (("an `async def` agent", agent, 1.6), ("`--model demo`", client, 3.0)):
        ours, peer = (1000 * each.cpu / count for each in (cost, plain))
        yield Line(f"{count:,} items, {name}: CPU an item", ours, "ms", peer, "plain pytest", target)
    more = 1000 * (client.peak - plain.peak) / count
    yield Line(f"{count:,} items, `--model demo`: memory a run, more than plain pytest's", more, "kB")


@SCENARIOS.add()
def memory(bench: Bench) -> Iterator[Line]:
    """10,000 items, one round: peaks hardly differ. What a session holds from its start on is in it."""
    count = 10_000 // bench.scale
    plain = bench.run(PLAIN, plain_project(bench, count))
    mine = bench.run(OURS, agent_project(bench, count))
    more = 1000 * (mine.peak - plain.peak) / count
    yield Line(f"{count:,} items, an `async def` agent: memory a run, more than plain pytest's", more, "kB", target=4)


@SCENARIOS.add()
def threads(bench: Bench) -> Iterator[Line]:
    """2,000 items by an agent that is a plain function."""
    count = 2_000 // bench.scale
    mine, plain = bench.alternate((OURS, agent_project(bench, count, "def")), (PLAIN, plain_project(bench, count)))
    ours, peer = (1000 * each.cpu / count for each in (mine, plain))
    yield Line(f"{count:,} items, a `def` agent: CPU an item", ours, "ms", peer, "plain pytest")


@SCENARIOS.add()
def junit(bench: Bench) -> Iterator[Line]:
    """10,000 items with a JUnit file, which pytest keeps in memory until the end."""
    count = 10_000 // bench.scale
    cost = bench.run((*OURS, "--junit-xml={fresh}/junit.xml"), agent_project(bench, count))
    yield Line(f"{count:,} items, the `async def` agent, JUnit: peak memory", cost.peak, "MB", target=300)


@SCENARIOS.add(on_disk=True)
def disk(bench: Bench) -> Iterator[Line]:
    """10,000 items on the ordinary disk."""
    yield from stored(bench, 10_000 // bench.scale)


@SCENARIOS.add(on_disk=True)
def disk_small(bench: Bench) -> Iterator[Line]:
    """2,000 items on the ordinary disk."""
    yield from stored(bench, 2_000 // bench.scale)


def stored(bench: Bench, count: int) -> Iterator[Line]:
    """Measure CPU and wall of items whose results are written."""
    mine, plain = bench.alternate((OURS, agent_project(bench, count)), (PLAIN, plain_project(bench, count)))
    for what, ours, peer in (("CPU", mine.cpu, plain.cpu), ("wall", mine.wall, plain.wall)):
        name = f"{count:,} items, an `async def` agent, on disk: {what} an item"
        yield Line(name, 1000 * ours / count, "ms", 1000 * peer / count, "plain pytest", 2.0)


@SCENARIOS.add()
def failures(bench: Bench) -> Iterator[Line]:
    """10,000 items of which a fifth fails, against the same without failures."""
    yield from failing(bench)


@SCENARIOS.add(on_disk=True)
def failures_disk(bench: Bench) -> Iterator[Line]:
    """The same on the ordinary disk."""
    yield from failing(bench)


def failing(bench: Bench, count: int = 10_000) -> Iterator[Line]:
    """Measure CPU and wall of a session to its last printed line, with 20 % failures and without."""
    count //= bench.scale
    argv = (*OURS, "--agentbench-fail-under=0.5")  # it passes: what is measured ends with exit status 0
    project = bench.project(f"failing-{count}", {"items.jsonl": rows(count), "conftest.py": WRONG})
    mine, peer = bench.alternate((argv, project), (argv, agent_project(bench, count)))
    for what, ours, without in (("CPU", mine.cpu, peer.cpu), ("wall", mine.wall, peer.wall)):
        name = f"{count:,} items, 20 % fail: {what}"
        yield Line(name, ours, "s", without, "without failures", 1.3)


@SCENARIOS.add(on_disk=True)
def files(bench: Bench) -> Iterator[Line]:
    """2,000 runs: what lies in the output folder. Of up to 1,000 runs a session also writes a layout for people."""
    count = 2_000
    bench.run(OURS, agent_project(bench, count))
    number, allocated, size = count_files(bench.output)
    yield Line(f"{count:,} runs: files a run", number / count, "files", target=0.01)
    yield Line(f"{count:,} runs: disk space a run, in whole blocks", allocated / count / 1000, "kB", target=4)
    yield Line(f"{count:,} runs: disk space a run, by the files' lengths", size / count / 1000, "kB", target=4)


def count_files(folder: Path) -> tuple[int, int, int]:
    """Return how many files lie below a folder, the bytes of their blocks and their folders', and of their contents."""
    number = allocated = size = 0
    for parent, _, names in os.walk(folder):
        allocated += os.lstat(parent).st_blocks * 512
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            number, allocated, size = number + 1, allocated + status.st_blocks * 512, size + status.st_size
    return number, allocated, size


@SCENARIOS.add(on_disk=True)
def http(bench: Bench) -> Iterator[Line]:
    """1,000 questions of 200 ms, 100 at once, stored on the ordinary disk."""
    yield from questions(bench, 1_000 // bench.scale, 100, target=1.4)


@SCENARIOS.add()
def wait(bench: Bench) -> Iterator[Line]:
    """2,000 questions of 200 ms, 200 at once."""
    yield from questions(bench, 2_000 // bench.scale, 200, target=1.3)


def questions(bench: Bench, count: int, at_once: int, *, target: float) -> Iterator[Line]:
    """Measure wall, of which the target is, and CPU of questions to a loopback endpoint that takes 200 ms."""
    source = bench.project("endpoint", {"items.jsonl": rows(count), "items.demo.yaml": script(count)})
    with endpoint(source, latency=0.2) as base_url:
        entry = models(model_id="slow", requested_model="demo", base_url=base_url, api_key_env="none")
        ours = bench.project("ahead", {"items.jsonl": rows(count), "models.yaml": entry})
        bare = bench.project("bare", {"items.jsonl": rows(count), "gather.py": GATHER})
        argv = (*OURS, "--model=slow", f"--agentbench-concurrency={at_once}")
        gather = (sys.executable, "gather.py", base_url, str(at_once))
        mine, peer = bench.alternate((argv, ours), (gather, bare))
    name, against = f"{count:,} questions of 200 ms, {at_once} at once", "`AsyncOpenAI` in `asyncio.gather`"
    yield Line(f"{name}: wall", mine.wall, "s", peer.wall, against, target)
    yield Line(f"{name}: CPU", mine.cpu, "s", peer.cpu, against)


@SCENARIOS.add()
def stream(bench: Bench) -> Iterator[Line]:
    """2,000 answers of 200 ms, 200 at once, in a stream and whole: of a word, and of 40 in 42 events."""
    yield from streamed(bench, 2_000 // bench.scale, 1, target=1.1)
    yield from streamed(bench, 2_000 // bench.scale, 40)


def streamed(bench: Bench, count: int, words: int, *, target: float | None = None) -> Iterator[Line]:
    """Measure wall, of which the target is, and CPU of answers of so many words in a stream, against whole ones."""
    answers = {f"q{n}": " ".join(map(str, range(n, n + words))) for n in range(count)}
    asked = ({"id": name, "question": f"Count on from {name[1:]}.", "answer": answers[name]} for name in answers)
    items = {"items.jsonl": "".join(json.dumps(item) + "\n" for item in asked)}
    scripts = {"items.demo.yaml": json.dumps({"schema_version": 1, "answers": answers})}
    with endpoint(bench.project(f"words-{words}", items | scripts), latency=0.2) as base_url:
        entry = {"model_id": "slow", "requested_model": "demo", "base_url": base_url, "api_key_env": "none"}
        argv = (*OURS, "--model=slow", "--agentbench-concurrency=200")
        ours, whole = (
            bench.project(f"stream-{wanted}-{words}", items | {"models.yaml": models(**entry, stream=wanted)})
            for wanted in (True, False)
        )
        mine, peer = bench.alternate((argv, ours), (argv, whole))
    name = f"{count:,} answers of 200 ms and {words} words in a stream"
    yield Line(f"{name}: wall", mine.wall, "s", peer.wall, "the same, whole", target)
    yield Line(f"{name}: CPU", mine.cpu, "s", peer.cpu, "the same, whole")


@SCENARIOS.add()
def collect(bench: Bench) -> Iterator[Line]:
    """100,000 JSONL rows and 10,000 `test.yaml` folders, only collected; the peer is the least that a plugin can do."""
    count = 100_000 // bench.scale
    ours = bench.project("many", {"items.jsonl": rows(count)})
    plain = bench.project("many-plain", {"items.jsonl": rows(count), "conftest.py": PLAIN_COLLECTOR})
    yield _collected(bench, f"collecting {count:,} JSONL rows", ours, plain, 1.0)
    count = 10_000 // bench.scale
    ours = bench.project("folders", {})
    plain = bench.project("folders-plain", {"conftest.py": PLAIN_COLLECTOR})
    for number in range(count):
        text = CASE.format(name=f"case-{number}", number=number, answer=number + 1)
        for folder in (ours / f"case-{number}", plain / f"case-{number}"):
            folder.mkdir()
            (folder / "test.yaml").write_text(text, encoding="utf-8")
    yield _collected(bench, f"collecting {count:,} `test.yaml` folders", ours, plain, 1.2)


def _collected(bench: Bench, name: str, ours: Path, plain: Path, target: float) -> Line:
    mine, peer = bench.alternate(((*OURS, *COLLECT), ours), ((*PLAIN, *COLLECT), plain))
    return Line(f"{name}: CPU", mine.cpu, "s", peer.cpu, "trivial collector", target)


@SCENARIOS.add()
def start(bench: Bench) -> Iterator[Line]:
    """What a session without a case pays for: the import of the plugin after pytest's own."""
    here = bench.project("start", {})
    seconds = median(float(bench.run((sys.executable, "-c", IMPORT), here).printed) for _ in range(3 * bench.rounds))
    yield Line("importing the plugin after pytest", 1000 * seconds, "ms", target=50)


if __name__ == "__main__":
    sys.exit(compare(parser_of(__doc__, SCENARIOS), SCENARIOS, ("pytest", "openai")))
