"""JSON values that nest deep."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_agentbench.sources.json_files import lies_deep


def nested(levels: int, inner: Any) -> Any:
    for level in range(levels):
        inner = [inner] if level % 2 else {"key": inner}
    return inner


@pytest.mark.slow
@pytest.mark.parametrize("inner", [1, "text", None, [], {}])
def test_how_deep_a_value_lies(inner: Any) -> None:
    value = [nested(99, inner), "beside it"]
    assert lies_deep(value, 100)
    assert not lies_deep(value, 101)
    assert lies_deep(nested(100_000, inner), 100_000)
