"""Reports on their way from xdist's workers: execnet writes and reads value by value, in Python, and a row has many."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

ROW, _PROPERTIES, _PARCEL = "agentbench_row", "user_properties", "agentbench_parcel"
_TEXTS = ("longrepr", "sections")
_PLAIN = (str, int, float, bool, type(None))


class Parcels:
    """In a worker packs a report's row and properties into one string, in the controller takes them out again.

    Nothing else is touched, nor properties that JSON would change. The row is on its way into report.json anyhow.
    Lone surrogates, which an agent may print or raise and execnet cannot carry, are written as escapes.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Packs."""
        data = yield
        if data is not None:
            packed = {name: data.pop(name) for name in (ROW, _PROPERTIES) if _packs(name, data.get(name))}
            if packed:
                data[_PARCEL] = json.dumps(packed)
            for name in _TEXTS:
                if data.get(name):
                    data[name] = _sendable(data[name])
        return data

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> Generator[None, object, object]:
        """Unpacks."""
        if (parcel := data.pop(_PARCEL, None)) is not None:
            packed = json.loads(parcel)
            if _PROPERTIES in packed:
                packed[_PROPERTIES] = [tuple(each) for each in packed[_PROPERTIES]]
            data.update(packed)
        return (yield)


def _packs(name: str, value: Any) -> bool:
    if not value:
        return False
    return name == ROW or all(type(each) is tuple and all(type(part) in _PLAIN for part in each) for each in value)


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _sendable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_sendable, value))
    return value
