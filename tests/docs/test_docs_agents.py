"""Every agent has a page, which says what its adapter does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.runners.agents.adapter import Adapter, find_adapter, list_adapters

DOCS = Path(__file__).parents[2] / "docs"
OVERVIEW = (DOCS / "agents.md").read_text(encoding="utf-8")
ADAPTERS = [find_adapter(name) for name in list_adapters()]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.program.name)
def test_an_agents_page_names_what_is_installed(adapter: Adapter) -> None:
    said = adapter.program
    file = f"{said.name.replace('_', '-')}.md"
    page = (DOCS / "agents" / file).read_text(encoding="utf-8")
    package = (said.install.npm or said.install.pypi or "").removesuffix(said.install.version).rstrip("@=")
    assert page.startswith(f"# {said.title}\n")
    assert f"`{package}` {said.install.version}" in page
    assert said.licence in page
    assert all(f"`{call.name}`" in page for call in said.tools.values())
    assert ("Unverified" in page) == (said.verified is None)
    [row] = [line for line in OVERVIEW.splitlines() if f"(agents/{file})" in line and f"| `{said.name}` |" in line]
    assert f"`{package}` {said.install.version} | {said.licence} |" in row
    has_turns = said.resume_argv is not None or not said.argv
    assert row.endswith(f"| {'yes' if has_turns else 'no'} |")
