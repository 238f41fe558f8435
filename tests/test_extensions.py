"""The table of extensions with sessions inside of one another, as pytester's are."""

from __future__ import annotations

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import (
    SessionExtensions,
    WithExtensions,
    cache_extensions,
    extension_names,
    find_extension,
    installed_names,
    load_extensions,
    session_extensions,
)


def test_the_innermost_session_comes_first_and_hides_what_an_outer_one_has() -> None:
    outer, inner = SessionExtensions(), SessionExtensions()
    outer.add("tool", "clock", 1, what="tool")
    outer.add("tool", "bell", 2, what="tool")
    inner.add("tool", "clock", 3, what="tool")
    assert load_extensions("tool") == {"bell": 2, "clock": 3}
    assert session_extensions("tool") == {"clock": 3}
    inner.close()
    inner.close()
    assert find_extension("tool", "clock") == 1
    assert session_extensions("tool") == {"clock": 1, "bell": 2}
    outer.close()
    assert find_extension("tool", "clock") is None
    assert extension_names("tool") == installed_names("tool")
    assert session_extensions("tool") == {}


def test_a_name_is_added_once_and_never_one_of_ours_or_of_a_packs() -> None:
    session = SessionExtensions()
    session.add("runner", "mine", object(), what="runner", ours={"llm_probe"})
    try:
        for name in ("mine", "llm_probe", "openclaw"):
            with pytest.raises(ConfigError, match=f"a plugin adds the runner '{name}', which exists already"):
                session.add("runner", name, object(), what="runner", ours={"llm_probe"})
        assert "mine" in extension_names("runner")
        assert "mine" not in installed_names("runner")
        assert "openclaw" in installed_names("runner")
    finally:
        session.close()


def test_what_is_made_of_extensions_is_kept_until_they_change() -> None:
    asked = []

    @cache_extensions
    def names() -> tuple[str, ...]:
        asked.append(1)
        return tuple(sorted(extension_names("tool")))

    assert (names(), names(), len(asked)) == ((), (), 1)
    session = SessionExtensions()
    session.add("tool", "clock", 1, what="tool")
    assert (names(), names(), len(asked)) == (("clock",), ("clock",), 2)
    session.close()
    assert (names(), len(asked)) == ((), 3)


def test_things_given_come_before_those_that_are_added() -> None:
    session = SessionExtensions()
    session.add("tool", "clock", 1, what="tool")
    try:
        tools = WithExtensions("tool", {"bell": 2, "clock": 3})
        assert dict(tools) == {"bell": 2, "clock": 3}
        assert (len(tools), "gong" in tools) == (2, False)
        with pytest.raises(KeyError):
            tools["gong"]
    finally:
        session.close()
