"""JSON values that nest deep, and objects with many keys."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_seconds import at_most

from pytest_agentbench.bounded.json_files import BadItem, lies_deep, read_items


def nested(levels: int, inner: Any) -> Any:
    for level in range(levels):
        inner = [inner] if level % 2 else {"key": inner}
    return inner


@pytest.mark.slow
@pytest.mark.parametrize("inner", [1, "text", None, [], {}])
def test_the_nesting_depth_of_a_value_is_compared_with_the_limit(inner: Any) -> None:
    value = [nested(99, inner), "beside it"]
    assert lies_deep(value, 100)
    assert not lies_deep(value, 101)
    assert lies_deep(nested(100_000, inner), 100_000)


@pytest.mark.parametrize(("name", "text"), [("rows.jsonl", "{%s}"), ("rows.json", '[{"a": 1}, {%s}]')])
def test_a_repeated_key_of_many_is_found_in_linear_time(tmp_path, name: str, text: str) -> None:
    pairs = ", ".join(f'"k{number}": 1' for number in [*range(60_000), 59_999])
    (tmp_path / name).write_text(text % pairs)

    with at_most(10):  # comparing each key with all others takes a minute
        *_, last = read_items(tmp_path / name)

        assert isinstance(last, BadItem)
        assert "duplicate key 'k59999'; remove one of them" in last.reason
