"""What scoring costs: `python benchmarks/metrics.py [--quick] [--only NAME]`; `--agreement VECTORS.jsonl` counts rows.

Every side is a process of its own that prints the CPU seconds of its work, without its start and its imports; sides
alternate over several rounds and the median of each counts.

`--agreement` reads rows of `ground_truth`, `prediction` and `scores_v1_benchmark`, the scores of the original metrics,
and prints how many of them the definitions here give: `compat="v1"` should all, the default differs where the original
was wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from processes import Bench, Scenarios, compare, parser_of
from record import Line

TIMED = """
import json, pathlib, sys, time
{prepare}
begun = time.process_time()
{work}
print(time.process_time() - begun)
"""

PAIRS = """
import random
rng = random.Random(1)
VOCABULARY = [f"word{n}" for n in range(300)]
PAIRS = [tuple(" ".join(rng.choices(VOCABULARY, k=20)) + "." for _ in range(2)) for _ in range(int(sys.argv[1]))]
"""

LIBRARY = PAIRS + "from rouge_score.rouge_scorer import RougeScorer\nscorer = RougeScorer(['rougeL'])"

SCORE = PAIRS + "from pytest_agentbench.metrics.scoring import score\nscore('rouge_score', 'a', 'a')"

MEASURE = (
    PAIRS
    + """
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.metrics.registry import measure
from pytest_agentbench.records.case import MetricSpec
NAME = sys.argv[2]
SPEC = MetricSpec(name=NAME, threshold=1.0)
SAMPLES = {
    "json_match": ('{"a": [1, 2], "b": "x"}', '{"b": "x", "a": [1, 3]}'),
    "math_equal": ("x+1", "$1+x$"),
    "multiple_choice": ("B", "A is too long, so the answer is (B)."),
    "numeric_match": ("1,234", "It comes to 1234 in all."),
    "exact_match": ("Paris", "Paris"),
}
PAIRS = [SAMPLES.get(NAME, pair) for pair in PAIRS]
assert measure(SPEC, *PAIRS[0], METRICS).error is None
"""
)

EVALUATE = """
from pytest_agentbench import create_benchmark
PATH = pathlib.Path("items.jsonl")
loaded = create_benchmark(PATH)
PREDICTIONS = {item.id: item.answer for item in loaded.items}
"""

SCENARIOS = Scenarios()


def seconds(bench: Bench, folder: Path, *sides: tuple[str, str, tuple[object, ...]]) -> list[float]:
    """Return the median CPU of each side: what it prepares, what is timed, its arguments."""
    rounds = []
    for _ in range(bench.rounds):
        commands = (
            (sys.executable, "-c", TIMED.format(prepare=prepare, work=work), *map(str, args))
            for prepare, work, args in sides
        )
        rounds.append([float(bench.run(command, folder).printed) for command in commands])
    return [median(side) for side in zip(*rounds, strict=True)]


@SCENARIOS.add()
def rouge(bench: Bench) -> Iterator[Line]:
    """ROUGE-L of 10,000 pairs of 20 words, by `score` and `measure`, and by the library with its own tokenizer."""
    count = 10_000 // bench.scale
    by_library, by_score, by_measure = seconds(
        bench,
        bench.project("rouge", {}),
        (LIBRARY, "for pair in PAIRS: scorer.score(*pair)", (count,)),
        (SCORE, "for pair in PAIRS: score('rouge_score', *pair)", (count,)),
        (MEASURE, "for pair in PAIRS: measure(SPEC, *pair, METRICS)", (count, "rouge_score")),
    )
    for name, ours in (("score", by_score), ("measure", by_measure)):
        yield Line(f"`{name}`, `rouge_score`, {count:,} pairs: CPU", ours, "s", by_library, "rouge_score alone", 1.2)


@SCENARIOS.add()
def each(bench: Bench) -> Iterator[Line]:
    """Every metric by `measure`: of exact_match 100,000 calls, of the others 10,000 (math_equal 1,000, elsewhere)."""
    folder = bench.project("each", {})
    names = ("exact_match", "contains_answer", "numeric_match", "similarity", "f1_score", "bleu_score", "json_match")
    for name in (*names, "multiple_choice", "math_equal"):
        count = {"exact_match": 100_000, "math_equal": 1_000}.get(name, 10_000) // bench.scale
        (taken,) = seconds(bench, folder, (MEASURE, "for pair in PAIRS: measure(SPEC, *pair, METRICS)", (count, name)))
        most = 10 if name == "exact_match" else None
        yield Line(f"`measure`, `{name}`, {count:,} pairs: CPU each", 1e6 * taken / count, "µs", target=most)


@SCENARIOS.add()
def benchmark(bench: Bench) -> Iterator[Line]:
    """Loading 100,000 items and `Benchmark.evaluate` with exact_match over them, on threads and without."""
    count = 100_000 // bench.scale
    items = ({"id": f"q{n}", "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count))
    folder = bench.project("benchmark", {"items.jsonl": "".join(json.dumps(item) + "\n" for item in items)})
    works = {
        f"`create_benchmark`, {count:,} rows: CPU": ("create_benchmark(PATH)", 3.0),
        f"`Benchmark.evaluate`, `exact_match`, {count:,} items: CPU": (
            "loaded.evaluate(PREDICTIONS, 'exact_match')",
            1.5,
        ),
        f"the same, `concurrent=False`, {count:,} items: CPU": (
            "loaded.evaluate(PREDICTIONS, 'exact_match', False)",
            1.5,
        ),
    }
    taken = seconds(bench, folder, *((EVALUATE, work, ()) for work, _ in works.values()))
    for (name, (_, limit)), ours in zip(works.items(), taken, strict=True):
        yield Line(name, ours, "s", target=limit)


def agreement(vectors: Path) -> str:
    """Markdown: of how many recorded rows each definition gives the very score."""
    from pytest_agentbench.metrics.scoring import score

    rows = [json.loads(line) for line in vectors.read_text(encoding="utf-8").splitlines()]
    lines = ['| metric | rows | `compat="v1"` equal | default equal | default higher | default lower |']
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name in rows[0]["scores_v1_benchmark"]:
        recorded = [row["scores_v1_benchmark"][name] for row in rows]
        original, default = (
            [score(name, row["ground_truth"], row["prediction"], compat=compat) for row in rows]
            for compat in ("v1", None)
        )
        signs = [(ours > theirs) - (ours < theirs) for ours, theirs in zip(default, recorded, strict=True)]
        same = sum(ours == theirs for ours, theirs in zip(original, recorded, strict=True))
        lines.append(f"| {name} | {len(rows)} | {same} | {signs.count(0)} | {signs.count(1)} | {signs.count(-1)} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table; 1 where a target is missed."""
    parser = parser_of(__doc__, SCENARIOS)
    parser.add_argument("--agreement", type=Path, metavar="VECTORS.jsonl", help="count equal scores; measures nothing")
    args = parser.parse_args()
    if args.agreement:
        print(agreement(args.agreement))
        return 0
    return compare(parser, SCENARIOS, ("rouge-score", "sacrebleu", "math-verify"))


if __name__ == "__main__":
    sys.exit(main())
