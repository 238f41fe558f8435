"""The table of extensions with sessions inside of one another, as pytester's are."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_agentbench import extensions
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


def test_cached_values_are_kept_until_the_extensions_change() -> None:
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


ENTRIES = """
[console_scripts]
tool one = elsewhere:main

[pytest_agentbench.packs]
# comment = nothing
tool one = %s:ONE
 "tool 'two' ~x" = a.b : C.d [extra]

[pytest11]
tool three = elsewhere
"""


def distribution(place: Path, folder: str, value: str = "first") -> None:
    (place / folder).mkdir(parents=True)
    (place / folder / "entry_points.txt").write_text(ENTRIES % value)


@pytest.mark.parametrize("form", ["folders", "an archive", "an egg"])
def test_entry_points_are_those_that_python_finds(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    distribution(first, "Some.Pack-1.0.dist-info")
    distribution(second, "some_pack-2.0.dist-info", "second")
    distribution(second, "other-1.0-py3.11.egg-info", "other")
    (second / "empty-1.0.dist-info").mkdir()
    (second / "wrong-1.0.dist-info").mkdir()
    (second / "wrong-1.0.dist-info" / "entry_points.txt").write_text("nothing = of_a_group\n")
    places = [first, second, tmp_path / "none"]
    if form == "an archive":
        with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
            archive.writestr("packed-1.0.dist-info/METADATA", "Name: packed\n")
            archive.writestr("packed-1.0.dist-info/entry_points.txt", ENTRIES % "packed")
        places.append(tmp_path / "packed.zip")
    if form == "an egg":
        distribution(tmp_path / "laid-1.0.egg", "EGG-INFO", "laid")
        (tmp_path / "laid-1.0.egg" / "EGG-INFO" / "PKG-INFO").write_text("Name: laid\n")
        places.append(tmp_path / "laid-1.0.egg")
    monkeypatch.setattr(sys, "path", [str(place) for place in places])
    found = sorted((entry.name, entry.value) for entry in extensions._entry_points())
    assert found == sorted((entry.name, entry.value) for entry in entry_points(group=extensions.GROUP))
    assert len(found) == (4 if form == "folders" else 6)
