"""Edits and values that change the identity of an agent, and those that do not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_projects import PROJECT, Project

from pytest_agentbench.engine.agent_code import MOST_SHOWN, CodeReader, find_imports
from pytest_agentbench.engine.agent_values import UnknownCode


def append(name: str, text: str) -> Callable[[Project, pytest.MonkeyPatch], None]:
    def edit(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        with (project.folder / name).open("a") as file:
            file.write(text)

    return edit


def env(name: str, value: str) -> Callable[[Project, pytest.MonkeyPatch], None]:
    return lambda project, monkeypatch: monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "edit",
    [
        append("bench_fixtures.py", "\nX = 1\n"),
        append("bench_agents/support.py", "\nX = 1\n"),
        append("bench_agents/support.py", "# a comment: nobody can tell that it changes nothing\n"),
        append("bench_agents/__init__.py", "X = 1\n"),
        append("bench_agents/prompts.py", "\nSYSTEM = 'You do not help.'\n"),
        append("bench_agents/deep.py", "\nX = 1\n"),
        append("bench_agents/late.py", "\nX = 1\n"),
        append("bench_agents/later_still.py", "X = 1\n"),
        append("bench_agents/by_name.py", "X = 1\n"),
        append("bench_agents/fast.py", "\nX = 1\n"),
        append("bench_agents/prompt.md", "Be brief, always."),
        env("BENCH_MODEL", "m2"),
        env("BENCH_RETRIES", "2"),
    ],
    ids=[
        "fixture's module",
        "agent's module",
        "comment",
        "package",
        "helper",
        "helper of a helper",
        "imported in a function",
        "imported by that",
        "imported by its name",
        "imported under a condition",
        "file read at import",
        "environment read at import",
        "environment read in a class",
    ],
)
def test_an_edit_of_a_source_or_a_plain_value_changes_the_identity(project, monkeypatch, edit):
    before = project.identity()
    edit(project, monkeypatch)
    assert project.identity() != before


@pytest.mark.parametrize(
    "edit",
    [
        append("test_unrelated.py", "\ndef test_more(): pass\n"),
        append("bench_agents/unrelated.py", "X = 1\n"),
        env("BENCH_KEY", "geheim"),
        env("BENCH_OTHER", "1"),
        env("BENCH_FAST", "1"),
    ],
    ids=["test module", "module of the package", "secret", "environment", "import chosen by the environment"],
)
def test_an_edit_of_an_unrelated_file_does_not_change_the_identity(project, monkeypatch, edit):
    before = project.identity()
    edit(project, monkeypatch)
    assert project.identity() == before


def test_an_identity_lists_modules_packages_and_values(project):
    found = project.identity()
    assert sorted(found["modules"]) == [
        *(f"bench_agents/{name}.py" for name in ("__init__", "by_name", "deep", "fast", "late", "later_still")),
        *(f"bench_agents/{name}.py" for name in ("prompts", "slow", "support", "tools")),
        "bench_fixtures.py",
    ]
    assert found["packages"]["yaml"].startswith("PyYAML 6")
    assert found["values"]["bench_agents/support.py: MODEL"] == "m1"
    assert found["values"]["bench_agents/support.py: PROMPT"] == "Be brief.\n"
    assert found["values"]["bench_agents/support.py: HERE"] == "<rootdir>/bench_agents"
    assert found["values"]["bench_agents/support.py: Agent.retries"] == 1
    assert found["values"]["bench_agents/support.py: calls"] == 0
    assert found["callable"] == {
        "class": "bench_agents.support.Agent",
        "api_key": "(a secret)",
        "mode": "fast",
        "retries": 1,
        "settings": {"stops": ["a", "b", "c"], "temperature": 0.5},
    }


def test_more_than_a_hundred_modules_are_hashed_together(project):
    names = [f"m{number}" for number in range(MOST_SHOWN)]
    project.write({f"bench_agents/many/{name}.py": f"NAME = '{name}'" for name in names})
    project.write({"bench_agents/many/__init__.py": f"from . import {', '.join(names)}"})
    project.write({"bench_agents/prompts.py": "from bench_agents import many"})
    before = project.identity()["modules"]
    assert before.startswith(f"{MOST_SHOWN + 12} in all, sha256:")
    project.write({"bench_agents/many/m7.py": "NAME = 'seven'"})
    assert project.identity()["modules"] != before


def test_a_replaced_variable_of_a_module_changes_the_identity(project):
    def patched(module: Any) -> Any:
        sys.modules["bench_agents.prompts"].SYSTEM = "You are rude."
        return module.runner()

    found = project.identity(patched)
    assert found["values"]["bench_agents/prompts.py: SYSTEM"] == "You are rude."
    assert found != project.identity()


AGENTS = """
    import asyncio, functools, os
    from dataclasses import dataclass
    from bench_agents import prompts

    def plain(case): return "Paris"
    async def later(case): return "Paris"
    def with_default(case, mode="a"): return mode
    def closing(mode):
        def agent(case): return mode
        return agent
    def closing_async(mode):
        async def agent(case): return mode
        return agent
    two = [lambda case: "a"]
    more = [lambda case: "a"]
    def wrapped(mode):
        @functools.wraps(plain)
        def outer(*args): return plain(*args) + mode
        return outer
    def marked(mode):
        def agent(case): return mode
        agent.mode = mode
        return agent
    class Object:
        def __init__(self, mode): self._mode = mode
        def __call__(self, case): return self._mode
        def answer(self, case): return self._mode
        async def answer_later(self, case): return self._mode
    class Slotted:
        __slots__ = ("mode",)
        def __init__(self, mode): self.mode = mode
        def __call__(self, case): return self.mode
    @dataclass
    class Data:
        mode: str
        inner: object = None
        def __call__(self, case): return self.mode
    class Other(Object): pass
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda m: m.plain, lambda m: m.later),
        (lambda m: m.closing("a"), lambda m: m.closing("b")),
        (lambda m: m.closing_async("a"), lambda m: m.closing_async("b")),
        (lambda m: m.closing({"a": [1, 2]}), lambda m: m.closing({"a": [2, 1]})),
        (lambda m: m.closing(m.plain), lambda m: m.closing(m.later)),
        (lambda m: m.two[0], lambda m: m.more[0]),
        (lambda m: m.wrapped("a"), lambda m: m.wrapped("b")),
        (lambda m: m.wrapped("a"), lambda m: m.plain),
        (lambda m: m.marked("a"), lambda m: m.marked("b")),
        (lambda m: m.Object("a"), lambda m: m.Object("b")),
        (lambda m: m.Object("a"), lambda m: m.Other("a")),
        (lambda m: m.Object("a").answer, lambda m: m.Object("b").answer),
        (lambda m: m.Object("a").answer, lambda m: m.Object("a").answer_later),
        (lambda m: m.Slotted("a"), lambda m: m.Slotted("b")),
        (lambda m: m.Data("a"), lambda m: m.Data("b")),
        (lambda m: m.Data("a", [m.Data("x")]), lambda m: m.Data("a", [m.Data("y")])),
        (lambda m: functools.partial(m.with_default, mode="a"), lambda m: functools.partial(m.with_default, mode="b")),
        (lambda m: functools.partial(m.plain), lambda m: functools.partial(m.later)),
        (lambda m: functools.partial(m.plain), lambda m: m.plain),
        (lambda m: m.Object(1), lambda m: m.Object(2)),
        (lambda m: m.Object(None), lambda m: m.Object(False)),
        (lambda m: m.Object(b"a"), lambda m: m.Object(b"b")),
        (lambda m: m.Object(Path("a")), lambda m: m.Object(Path("b"))),
        (lambda m: m.Object({"max_tokens": 1}), lambda m: m.Object({"max_tokens": 2})),
        (lambda m: m.Object({"stop_token": "a"}), lambda m: m.Object({"stop_token": "b"})),
        (lambda m: m.Object("x" * 1000), lambda m: m.Object("x" * 999 + "y")),
    ],
)
def test_agents_that_differ_have_different_identities(project, one, other):
    project.write({"bench_fixtures.py": AGENTS.rstrip() + "\n    def runner(): pass"})
    identities = [project.identity(make) for make in (one, other, one, other)]
    assert identities[:2] == identities[2:]
    assert identities[0] != identities[1]


HEAD = """
    import configparser, enum, os, string
    from dataclasses import dataclass
    import httpx2, pydantic
    from openai import AsyncOpenAI
    def env(): return os.environ.get("BENCH_X", "a")
    def answer(case): return "Paris"
    class Agent:
        def __init__(self, held): self.held = held
        def __call__(self, case): return "Paris"
"""
PLAIN_VALUES = {
    "global statement": """
        def load():
            if env():
                global MODEL
                MODEL = env()
        load()
        def runner(): return answer
    """,
    "globals()": """
        globals().update(MODEL=env())
        def runner(): return answer
    """,
    "class of settings": """
        class Settings:
            model = env()
        def runner(): return answer
    """,
    "enum": """
        class Mode(enum.Enum):
            ONE = env()
        def runner(): return Agent(Mode.ONE)
    """,
    "dataclass": """
        @dataclass(slots=True)
        class Settings:
            model: str
        def runner(): return Agent([Settings(env())])
    """,
    "model of pydantic": """
        class Settings(pydantic.BaseModel):
            model: str
        SETTINGS = Settings(model=env())
        def runner(): return answer
    """,
}
"""Modules with one source. The plain values that they or their agents hold depend on the environment."""


def unstable(source: str) -> dict[str, str]:
    """A fixture's module that begins with HEAD."""
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return {"bench_fixtures.py": HEAD.rstrip() + "".join(f"\n    {line[indent:]}" for line in lines)}


@pytest.mark.parametrize("source", PLAIN_VALUES.values(), ids=PLAIN_VALUES.keys())
def test_plain_values_from_the_environment_change_the_identity(project, monkeypatch, source):
    project.write(unstable(source))
    before = project.identity()
    assert project.identity() == before
    monkeypatch.setenv("BENCH_X", "another")
    assert project.identity() != before


NOT_COVERED = {
    "default of a helper": """
        def helper(mode=env()): return mode
        def runner(): return answer
    """,
    "argument of a decorator": """
        def named(name):
            def decorate(function):
                def outer(*args): return name
                return outer
            return decorate
        @named(env())
        def helper(mode): return mode
        def runner(): return answer
    """,
    "class made by a function": """
        def make(mode):
            class Inner:
                def __call__(self, case): return mode
            return Inner
        def runner(): return make(env())()
    """,
    "object in an attribute": "def runner(): return Agent(Agent(env()))",
    "object of Python's library": "def runner(): return Agent(string.Template(env()))",
    "endpoint of a client": "def runner(): return Agent(AsyncOpenAI(api_key='k', base_url=f'http://{env()}/v1'))",
}
"""The same with values that are not plain: an attribute `fingerprint` has to name them."""


@pytest.mark.parametrize("source", NOT_COVERED.values(), ids=NOT_COVERED.keys())
def test_other_objects_do_not_change_the_identity(project, monkeypatch, source):
    project.write(unstable(source))
    before = project.identity()
    monkeypatch.setenv("BENCH_X", "another")
    assert project.identity() == before


def test_an_agent_that_holds_a_function_without_source_has_no_identity(project):
    project.write(
        unstable("""
            def runner():
                names = {}
                exec(f"def render(): return {env()!r}", names)
                return Agent(names["render"])
        """)
    )
    with pytest.raises(UnknownCode, match="render has no source file"):
        project.identity()


@pytest.mark.parametrize(
    "made",
    [
        "tempfile.mkdtemp()",
        "threading.Thread(target=print)",
        "threading.local()",
        "logging.getLogger('bench')",
        "AsyncOpenAI(api_key=uuid.uuid4().hex)",
        "pydantic.SecretStr(uuid.uuid4().hex)",
        "Silent()",
        "mock.MagicMock()",
        "mock.MagicMock(spec=dict)",
        "f'postgres://me:{uuid.uuid4()}@host/db'",
    ],
)
def test_objects_that_differ_in_each_session_do_not_change_the_identity(project, made):
    source = f"""
        import logging, tempfile, threading, uuid
        from unittest import mock
        class Silent:
            def __getattribute__(self, name): raise RuntimeError(name)
        def runner(): return Agent({made})
    """
    project.write(unstable(source))
    assert project.identity() == project.identity()


def test_an_agent_with_a_circle_of_values_has_no_identity(project):
    project.write({"bench_fixtures.py": AGENTS.rstrip() + "\n    def runner(): pass"})

    def make_circle(m: Any) -> Any:
        circle: list[Any] = []
        circle.append(circle)
        return m.Object(circle)

    with pytest.raises(UnknownCode, match="in a circle"):
        project.identity(make_circle)


def test_a_checkout_may_be_moved(project, tmp_path, monkeypatch):
    before = project.identity()
    moved = tmp_path / "elsewhere" / "deep"
    moved.parent.mkdir()
    project.folder.rename(moved)
    project.folder = moved
    assert project.identity() == before


SCRIPT = """
import sys, time
from pathlib import Path
from pytest_agentbench.engine.agent_code import CodeReader
from pytest_agentbench.identity.fingerprints import canonical_json
sys.path.insert(0, sys.argv[1])
import bench_fixtures
reader = CodeReader(Path(sys.argv[1]), time.time_ns())
print(canonical_json(reader.read(bench_fixtures.runner(), [bench_fixtures.runner]).shown).decode())
"""


@pytest.mark.slow
def test_all_processes_compute_the_same_identity(project):
    source = PROJECT["bench_fixtures.py"].replace('{"a", "b", "c"}', 'set("abcdefghijklmnopqrstuvwxyz")')
    project.write({"bench_fixtures.py": source})
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(project.folder)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert json.loads(found.pop()) == project.identity()


def test_a_callable_of_an_installed_package_counts_with_its_version(project):
    import yaml

    found = project.reader().read(yaml.safe_load)
    assert found.shown["callable"]["function"] == "yaml.safe_load"
    assert found.shown["packages"]["yaml"].startswith("PyYAML 6")


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (len, "not written in Python"),
        ({"q": "a"}.get, "not written in Python"),
        (functools.partial(len), "not written in Python"),
        (eval("lambda case: 'Paris'", {"__name__": "made_up"}), "no source file"),
    ],
    ids=["builtin", "method", "partial", "eval"],
)
def test_an_agent_without_source_has_no_identity(project, thing, why):
    with pytest.raises(UnknownCode, match=why):
        project.reader().read(thing)


def test_a_file_that_changed_since_the_session_began_has_no_identity(project):
    """Python may have loaded the older text."""
    module, began = project.load(), time.time_ns()
    path = project.folder / "bench_agents" / "deep.py"
    os.utime(path, ns=(began + 1, began + 1))
    with pytest.raises(UnknownCode, match=r"bench_agents/deep\.py was changed while the session ran"):
        CodeReader(project.folder, began).read(module.runner())


def test_a_hook_counts_with_the_modules_of_its_folder(project):
    """A hook imports from its folder."""
    project.write(
        {"hooks/check.py": "import bench_beside\ndef passed(): return True", "hooks/bench_beside.py": "A = 1"}
    )
    before = project.reader().read_file(project.folder / "hooks" / "check.py").shown
    assert sorted(before["modules"]) == ["bench_beside.py", "check.py"]
    project.write({"hooks/bench_beside.py": "A = 22"})
    assert project.reader().read_file(project.folder / "hooks" / "check.py").shown != before


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_file_has_imports(source):
    list(find_imports(source))


def test_imports_of_a_module_and_of_its_functions_are_distinguished():
    found = find_imports(
        b"import a, b.c as d\nfrom .e import f\n"
        b"if a:\n    from g import h\nelse:\n    try:\n        import i\n    except ImportError:\n        import j\n"
        b"class C:\n    import k\n    def m(self):\n        if a:\n            import l\n"
        b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import n\n"
        b"importlib.import_module('o.p')\n"
    )
    assert sorted(found) == [
        (False, 0, "a", ()),
        (False, 0, "b.c", ()),
        (False, 0, "g", ("h",)),
        (False, 0, "i", ()),
        (False, 0, "j", ()),
        (False, 0, "k", ()),
        (False, 0, "typing", ("TYPE_CHECKING",)),
        (False, 1, "e", ("f",)),
        (True, 0, "l", ()),
        (True, 0, "n", ()),
        (True, 0, "o.p", ()),
    ]
