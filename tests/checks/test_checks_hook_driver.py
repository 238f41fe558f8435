"""The hook driver accepts some forms of hooks and of their results, and refuses all others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_agentbench.checks import hook_driver as driver

EMPTY = {"message": None, "metadata": {}, "outputs": {}}


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        (True, {"passed": True}),
        (False, {"passed": False}),
        ({"passed": True}, {"passed": True, **EMPTY}),
        ({"passed": False, "message": 7}, {"passed": False, **EMPTY, "message": "7"}),
        (
            {"passed": True, "metadata": {1: {"a": {2}}}, "outputs": {"x": None}},
            {"passed": True, "message": None, "metadata": {"1": {"a": "{2}"}}, "outputs": {"x": None}},
        ),
        (SimpleNamespace(passed=True, message="fine", other=1), {"passed": True, **EMPTY, "message": "fine"}),
    ],
)
def test_a_verdict_is_a_bool_a_mapping_or_a_result(returned, verdict):
    assert driver._verdict(returned) == verdict


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "the hook returned None, expected a bool, a mapping or a result with `passed`"),
        (1, "the hook returned int '1', expected a bool"),
        ("yes" * 40, f"the hook returned str '{('yes' * 40)[:60]}', expected a bool"),
        ({}, "the hook returned `passed` as None, expected True or False"),
        ({"passed": 1}, "the hook returned `passed` as int '1', expected True or False"),
        ({"passed": True, "score": 1, 2: 3}, r"the hook returned the keys \['2', 'score'\], expected some of"),
        (
            {"passed": True, "outputs": [1]},
            r"the hook returned list '\[1\]' as metadata or outputs",
        ),
        (SimpleNamespace(passed=None), "the hook returned `passed` as None"),
    ],
)
def test_every_other_value_is_an_error_that_describes_it(returned, said):
    with pytest.raises(TypeError, match=said):
        driver._verdict(returned)


@pytest.mark.parametrize(
    ("hook", "wanted"),
    [
        (lambda: True, 0),
        (lambda artifact: True, 1),
        (lambda artifact, /: True, 1),
        (lambda artifact, context: True, 2),
        (lambda artifact, context, more=1: True, 2),
        (lambda *given: True, 2),
        (lambda artifact, *, named=1: True, 1),
        (lambda **named: True, 0),
    ],
)
def test_a_hook_gets_as_much_as_it_takes(hook, wanted):
    assert driver._wanted(hook) == wanted


def test_a_hook_is_a_callable_of_a_file_or_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside_hook.py").write_text("word = 'beside'")
    (tmp_path / "hook.py").write_text("import beside_hook\nthing = 1\ndef check(): return beside_hook.word\n")

    def load(**fields: Any) -> Any:
        return driver._load({"path": None, "import_path": None, "callable_name": "check", **fields})

    path = str(tmp_path / "hook.py")
    assert load(path=path)() == "beside"
    assert load(import_path="json", callable_name="dumps")([]) == "[]"
    with pytest.raises(TypeError, match=r"hook\.py has no callable 'thing'"):
        load(path=path, callable_name="thing")
    with pytest.raises(TypeError, match="json has no callable 'gone'"):
        load(import_path="json", callable_name="gone")
    with pytest.raises(ImportError, match="is no Python file"):
        load(path=str(tmp_path / "hook.txt"))


def test_an_exception_is_described_with_the_line_of_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_hook.py").write_text("\n\ndef check():\n    raise KeyError('x')\n")
    hook = driver._from_file(tmp_path / "raising_hook.py")
    with pytest.raises(KeyError) as caught:
        hook.check()
    assert driver._described(caught.value) == "KeyError: 'x' (raising_hook.py:4)"
    assert driver._described(ValueError("no")) == "ValueError: no"
