"""Projects of several modules that make an agent, for tests of its identity."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_agentbench.engine.agent_code import CodeReader
from pytest_agentbench.identity.fingerprints import canonical_json

PROJECT = {
    "bench_fixtures.py": """
        from bench_agents.support import Agent
        def runner(): return Agent("fast", {"temperature": 0.5, "stops": {"a", "b", "c"}})
    """,
    "bench_agents/__init__.py": "",
    "bench_agents/support.py": """
        import os
        from pathlib import Path
        import yaml
        from bench_agents import prompts
        from .tools import look_up
        MODEL = os.environ.get("BENCH_MODEL", "m1")
        PROMPT = Path(__file__).with_name("prompt.md").read_text()
        HERE = Path(__file__).parent
        if os.environ.get("BENCH_FAST"):
            from .fast import answer
        else:
            from .slow import answer
        calls = 0
        class Agent:
            retries = int(os.environ.get("BENCH_RETRIES", "1"))
            def __init__(self, mode, settings):
                self.mode, self.settings, self.api_key = mode, settings, os.environ.get("BENCH_KEY", "")
            def __call__(self, case):
                from bench_agents import late
                import importlib; importlib.import_module("bench_agents.by_name")
                return answer(case)
    """,
    "bench_agents/prompts.py": "SYSTEM = 'You help.'",
    "bench_agents/tools.py": "from bench_agents import deep\ndef look_up(name): return deep.found(name)",
    "bench_agents/deep.py": "def found(name): return name",
    "bench_agents/late.py": "from bench_agents import later_still",
    "bench_agents/later_still.py": "",
    "bench_agents/by_name.py": "",
    "bench_agents/fast.py": "def answer(case): return 'Paris'",
    "bench_agents/slow.py": "def answer(case): return 'Paris.'",
    "bench_agents/prompt.md": "Be brief.",
    "bench_agents/unrelated.py": "",
    "test_unrelated.py": "def test_it(): pass",
}
"""An agent of several modules. Names are such that no other test has them."""


class Project:
    """A folder of modules, imported anew at each look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(PROJECT)

    def write(self, files: dict[str, str]) -> None:
        for name, source in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = source.strip("\n").splitlines()
            indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
            path.write_text("\n".join(line[indent:] for line in lines) + "\n", encoding="utf-8")

    def load(self, name: str = "bench_fixtures") -> Any:
        forget()
        importlib.invalidate_caches()
        sys.path.insert(0, str(self.folder))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(self.folder))

    def reader(self) -> CodeReader:
        return CodeReader(self.folder, time.time_ns())

    def identity(self, make: Callable[[Any], Any] | None = None) -> dict[str, Any]:
        """Return the identity of the agent that the fixture `runner` or `make(module)` returns."""
        reader = self.reader()
        module = self.load()
        sys.path.insert(0, str(self.folder))
        try:
            found = reader.read(make(module) if make else module.runner(), [module.runner])
        finally:
            sys.path.remove(str(self.folder))
        return json.loads(canonical_json(found.shown))


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("bench_")]:
        del sys.modules[name]
