"""A file of CSV or Parquet that is named on the command line is refused with what reads it."""

from __future__ import annotations

import pytest
from support.bench import Bench

from pytest_agentbench.cli import main


@pytest.mark.parametrize("name", ["rows.csv", "ROWS.PARQUET"])
def test_pytest_and_all_commands_refuse_a_table_with_the_same_error(
    bench: Bench, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    bench.write(name, "question,answer\n1 + 1?,2\n")
    expected = (
        f"{name}: expected a .jsonl or .json file; a dataset.yaml reads CSV and Parquet with `source: hf:./{name}`"
    )
    finished = bench.pytester.runpytest_inprocess(name)
    assert finished.ret == pytest.ExitCode.USAGE_ERROR
    finished.stderr.fnmatch_lines([f"*{bench.path / name}*", f"ERROR: *{expected}"])
    capsys.readouterr()
    bench.write("preds.json", '{"a": "2"}')
    for command in (["new", "dataset", name], ["validate", name], ["list", name], ["evaluate", name, "preds.json"]):
        assert main(command) != 0
        printed = capsys.readouterr()
        assert expected in printed.out + printed.err


def test_a_missing_file_gets_no_advice(bench: Bench) -> None:
    finished = bench.pytester.runpytest_inprocess("gone.csv")
    assert "dataset.yaml" not in finished.stderr.str()
