"""Shapes of public sets, and the checks of the descriptors that `agentbench new dataset` writes for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from pytest_agentbench import create_benchmark
from pytest_agentbench.cli import main
from pytest_agentbench.cli.dataset_guesses import guess_dataset


class Shape(NamedTuple):
    """Rows with the fields of a public set, and replies that are right and wrong for them."""

    rows: list[dict]
    right: list[str]
    wrong: list[str]
    shown: Sequence[str] = ()
    """Texts in the prompt of the first row."""
    unused: Sequence[str] = ()
    """The fields that are named as unused."""


def make_benchmark(folder, monkeypatch, rows):
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    return create_benchmark("dataset.yaml")


def right_letters(benchmark, replies):
    """Return letters for replies that are the text of an option of a list in another order."""
    letters = []
    for item, reply in zip(benchmark.get_items(), replies, strict=True):
        options = (item.metadata or {}).get("choices")
        letters.append("ABCDEFGH"[options.index(reply)] if isinstance(options, list) and reply in options else reply)
    return letters


def scores(benchmark, replies):
    results = benchmark.evaluate(replies)
    assert benchmark.get_summary()["failed_items"] == 0
    return [result.score for result in results]


def require_scores(folder, monkeypatch, capsys, shape):
    """Require that right replies pass and wrong ones fail, and that the command has named the unused fields."""
    benchmark = make_benchmark(folder, monkeypatch, shape.rows)
    printed = capsys.readouterr().out
    threshold = yaml.safe_load(Path("dataset.yaml").read_text(encoding="utf-8"))["metrics"][0]["threshold"]
    assert all(score >= threshold for score in scores(benchmark, shape.right))
    assert all(score >= threshold for score in scores(benchmark, right_letters(benchmark, shape.right)))
    assert all(score < threshold for score in scores(benchmark, shape.wrong))
    asked = next(iter(benchmark.get_items())).question
    for text in shape.shown:
        assert text in asked
    for field in shape.unused:
        assert f"  unused     {field}, such as: " in printed


def require_all_fields(shape):
    """Require that the guess uses each field or names it as unused."""
    guess = guess_dataset(shape.rows)
    roots = {path.partition(".")[0] for path in (*guess.used, *(field for field, _ in guess.unused))}
    assert roots == {key for row in shape.rows for key in row}
