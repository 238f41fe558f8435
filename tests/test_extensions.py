"""The table of extensions with sessions inside of one another, as pytester's are."""

from __future__ import annotations

import inspect
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pytest_agentbench import Pack
from pytest_agentbench.engine.services import build_registry
from pytest_agentbench.entry_points import read_entry_points
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import (
    GROUP,
    SessionExtensions,
    WithExtensions,
    cache_extensions,
    check_own_names,
    extension_names,
    find_extension,
    forget_packs,
    installed_names,
    list_problems,
    load_extensions,
    session_extensions,
)
from pytest_agentbench.runners.base import BUILTIN_RUNNERS
from pytest_agentbench.seams import FIELDS


def first(*arguments: object) -> None:
    """Stand for a judge."""


def second(*arguments: object) -> None:
    """Stand for another judge."""


def test_the_innermost_session_comes_first_and_hides_what_an_outer_one_has() -> None:
    outer, inner = SessionExtensions(), SessionExtensions()
    outer.add("judge", "clock", first)
    outer.add("judge", "bell", f"{__name__}:second")
    inner.add("judge", "clock", second)
    assert load_extensions("judge") == {"bell": second, "clock": second}
    assert session_extensions("judge") == {"clock": second}
    inner.close()
    inner.close()
    assert find_extension("judge", "clock") is first
    assert session_extensions("judge") == {"clock": first, "bell": second}
    outer.close()
    assert find_extension("judge", "clock") is None
    assert extension_names("judge") == installed_names("judge")
    assert session_extensions("judge") == {}


def test_a_name_is_added_once_and_never_one_of_ours_or_of_a_packs() -> None:
    session = SessionExtensions()
    session.add("runner", "mine", first)
    try:
        for name in ("mine", "llm_probe", "openclaw"):
            with pytest.raises(ConfigError, match=f"a plugin adds the runner '{name}', which exists already"):
                session.add("runner", name, first)
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
        return tuple(sorted(extension_names("judge")))

    assert (names(), names(), len(asked)) == ((), (), 1)
    session = SessionExtensions()
    session.add("judge", "clock", first)
    assert (names(), names(), len(asked)) == (("clock",), ("clock",), 2)
    session.close()
    assert (names(), len(asked)) == ((), 3)


def test_things_given_come_before_those_that_are_added() -> None:
    session = SessionExtensions()
    session.add("judge", "clock", first)
    try:
        judges = WithExtensions("judge", {"bell": second, "clock": second})
        assert dict(judges) == {"bell": second, "clock": second}
        assert (len(judges), "gong" in judges) == (2, False)
        with pytest.raises(KeyError):
            judges["gong"]
    finally:
        session.close()


def test_each_field_of_a_pack_is_a_seam() -> None:
    assert [*inspect.signature(Pack).parameters] == ["name", *FIELDS]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install distributions, each with a pack that the arguments of `Pack` describe."""

    def make(**packs: str) -> None:
        for name, arguments in packs.items():
            info = tmp_path / f"{name}_dist-1.0.dist-info"
            info.mkdir()
            (info / "entry_points.txt").write_text(f"[pytest_agentbench.packs]\n{name} = {name}_pack:PACK\n")
            code = f"from pytest_agentbench import *\nPACK = Pack({name!r}, {arguments})\n"
            (tmp_path / f"{name}_pack.py").write_text(code)
            monkeypatch.delitem(sys.modules, f"{name}_pack", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))  # forgets, which modules are missing, too
        forget_packs()

    yield make
    monkeypatch.undo()
    forget_packs()


def test_two_packs_that_claim_a_name_are_named_when_it_is_used(install: Callable[..., None]) -> None:
    install(ant="judges={'panel': print, 'ant': print}", bee="judges={'panel': repr, 'bee': repr}")
    problem = (
        "the pack '(ant|bee)' of (ant|bee)-dist adds the judge type 'panel', and "
        "the pack '(ant|bee)' of (ant|bee)-dist adds the judge type 'panel'; uninstall one of them"
    )
    with pytest.raises(ConfigError, match=problem):
        find_extension("judge", "panel")
    assert load_extensions("judge") == {"ant": print, "bee": repr}
    assert [re.fullmatch(problem, text) is not None for text in list_problems()] == [True]


def test_a_name_of_ours_stays_ours(install: Callable[..., None]) -> None:
    sections, sandboxes = "{'title': 'nowhere:TITLE'}", "{'docker': 'nowhere:DOCKER'}"
    runners = "{'llm_probe': print, 'ant': print}"
    install(ant=f"runners={runners}, run_profile_sections={sections}, sandboxes={sandboxes}")
    check_own_names()
    assert list_problems() == [
        "the pack 'ant' of ant-dist adds the sandbox 'docker', which exists already; choose another name",
        "the pack 'ant' of ant-dist adds the runner 'llm_probe', which exists already; choose another name",
        "the pack 'ant' of ant-dist adds the section 'title', which exists already; choose another name",
    ]
    assert build_registry().runners["llm_probe"] is BUILTIN_RUNNERS["llm_probe"]
    assert build_registry().runners["ant"] is print
    assert find_extension("sandbox", "docker") is not None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("runers={}", r"is ignored: ant_pack:PACK: TypeError: .*unexpected keyword argument 'runers'"),
        ("tools=[print]", r"TypeError: Pack\('ant'\): tools: found list, expected a mapping of names"),
        ("judges={'a': 3}", "of ant-dist adds the judge type 'a' as int, expected a callable"),
        ("judges={'a': 'absent:A'}", "the judge type 'a' as 'absent:A', which cannot be imported: No module named"),
        ("judges={'a': 'json:A'}", "module 'json' has no attribute 'A'"),
    ],
)
def test_a_wrong_pack_is_named_and_the_others_work(install: Callable[..., None], arguments: str, problem: str) -> None:
    install(ant=arguments, bee="judges={'bee': print}")
    assert load_extensions("judge") == {"bee": print}
    assert re.search(f"the pack 'ant' .*{problem}", "\n".join(list_problems())), list_problems()


ENTRIES = """
[console_scripts]
one = elsewhere:main

[pytest_agentbench.packs]
# comment = nothing
one = %s:ONE
 "tool 'two' ~x" = a.b : C.d [extra]

[pytest11]
three = elsewhere
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
    found = sorted((entry.name, entry.value) for entry in read_entry_points(GROUP))
    assert found == sorted((entry.name, entry.value) for entry in entry_points(group=GROUP))
    assert len(found) == (4 if form == "folders" else 6)
