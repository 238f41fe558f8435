"""What scoring research reports costs: `python benchmarks/research.py [--quick] [--only NAME]`.

The arithmetic of RACE and the reading of stored scores are CPU seconds of this process, the least of several rounds,
for other programs only ever add to a cost. `research_pages` measures the pages that reports cite.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

from tables import Measured, Section, print_table

from pytest_agentbench.cli import main as agentbench
from pytest_agentbench.packs.research.race_judging import Scored, race
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, RaceCriteria, RaceCriterion

TASKS, CRITERIA = 10_000, 25
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, once: shows that it works")
    parser.add_argument("--only", metavar="NAME", help="one section")
    args = parser.parse_args()
    tasks, rounds = (TASKS // 10, 1) if args.quick else (TASKS, ROUNDS)
    sections = {
        "race": Section(partial(arithmetic, tasks, rounds)),
        "race_results": Section(partial(stored_scores, tasks, rounds)),
    }
    print_table(sections, args.only, more="each")


def arithmetic(tasks: int, rounds: int) -> Iterable[Measured]:
    """Criterion scores of many reports to their RACE scores."""
    judged = [(criteria_of(task), scores_of(task)) for task in range(tasks)]

    def score() -> None:
        for criteria, scores in judged:
            race(criteria, scores)

    yield measured(f"RACE, {tasks:,} reports, {CRITERIA} criteria each", tasks, least(score, rounds), 2.0)


def stored_scores(tasks: int, rounds: int) -> Iterator[Measured]:
    """`agentbench research race --raw_results`: each row checked, means, race_result.txt."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="research-benchmark-") as name:
        file = Path(name, "raw_results.jsonl")
        scores = (dict.fromkeys((*RACE_DIMENSIONS, "overall_score"), rng.random()) for _ in range(tasks))
        rows = (json.dumps({"id": task, "prompt": f"query {task}", **row}) for task, row in enumerate(scores))
        file.write_text("\n".join(rows))

        def call() -> None:
            with redirect_stdout(StringIO()):
                assert agentbench(["research", "race", "--raw-results", str(file), "--output-dir", name]) == 0

        yield measured(f"`race --raw-results`, {tasks:,} rows", tasks, least(call, rounds), 2.0)


def criteria_of(task: int) -> RaceCriteria:
    """25 criteria over the four dimensions."""
    weights = dict(zip(RACE_DIMENSIONS, (7, 7, 6, 5), strict=True))
    criterions = {
        name: tuple(
            RaceCriterion(criterion=f"Criterion {n} of {name} in {task}", weight=1 / count) for n in range(count)
        )
        for name, count in weights.items()
    }
    assert sum(len(each) for each in criterions.values()) == CRITERIA
    return RaceCriteria(
        id=task, prompt=f"query {task}", dimension_weight=dict.fromkeys(RACE_DIMENSIONS, 0.25), criterions=criterions
    )


def scores_of(task: int) -> dict[str, tuple[Scored, ...]]:
    """A judge's scores of them."""
    rng = random.Random(task)
    return {
        name: tuple(Scored(each.criterion, rng.uniform(0, 10), rng.uniform(0.1, 10)) for each in criteria)
        for name, criteria in criteria_of(task).criterions.items()
    }


def least(work: Callable[[], None], rounds: int) -> float:
    """CPU seconds of the fastest round."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def measured(scenario: str, count: int, seconds: float, limit: float) -> Measured:
    """A line of the table."""
    each = f"{1e6 * seconds / count:.0f} µs"
    return Measured(scenario, f"{seconds:.2f} s", "", each, f"< {limit:g} s", seconds < limit)


if __name__ == "__main__":
    main()
