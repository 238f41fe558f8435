"""What the documentation lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from api_pages import TOPICS
from docs_pages import blocks
from public_api import FOR_THE_ENGINE, PASSED_ON, find_member, missing_names, public_names
from reference_pages import TABLES, documented_models, options_table

from pytest_agentbench.checks.run import BUILTIN_CHECKS
from pytest_agentbench.config.kinds import json_schemas
from pytest_agentbench.metrics.registry import BUILTIN_METRICS
from pytest_agentbench.models.script_files import script_schemas
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
OF_OTHER_RUNNERS = {"output_artifact_present", "openclaw_workspace_file_present", "permission_asked", "skill_used"}


@pytest.mark.slow
@pytest.mark.parametrize("page", list(TABLES))
def test_the_tables_of_options_and_settings_are_up_to_date(page: str) -> None:
    assert TABLES[page]() in (DOCS / page).read_text(encoding="utf-8"), "renew it: python tests/docs/reference_pages.py"


@pytest.mark.slow
def test_every_option_that_pytest_shows_is_in_the_table(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    table = options_table()
    names = set(re.findall(r"--agentbench-[a-z-]+", shown)) | set(re.findall(r"\bagentbench_\w+(?= \()", shown))
    assert names == set(re.findall(r"--agentbench-[a-z-]+|agentbench_\w+", table))


def test_the_case_with_every_check_has_every_check() -> None:
    page = (DOCS / "writing-cases.md").read_text(encoding="utf-8")
    [case] = [yaml.safe_load(b.text) for b in blocks(page) if b.argument == "cases/all_checks/test.yaml"]
    kinds = {check["declarative"]["kind"] for check in case["deterministic_checks"]}
    assert kinds == set(BUILTIN_CHECKS) - OF_OTHER_RUNNERS
    assert all(kind in page for kind in OF_OTHER_RUNNERS)


@pytest.mark.parametrize(
    ("page", "names"), [("writing-cases.md", BUILTIN_TOOLS), ("metrics.md", BUILTIN_METRICS)], ids=["tools", "metrics"]
)
def test_every_built_in_name_is_explained(page: str, names: dict[str, object]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_every_class_in_a_public_signature_is_public() -> None:
    documented = frozenset(documented_models({**json_schemas(), **script_schemas()}))
    assert missing_names(documented) == {}, "export them, or list the members in public_api.FOR_THE_ENGINE"
    assert {public.room for public in public_names()} == {*TOPICS}


@pytest.mark.slow
def test_each_member_that_pages_leave_out_exists() -> None:
    assert [name for name in FOR_THE_ENGINE if find_member(name) is None] == []
    assert {public.name for public in public_names()} >= PASSED_ON


def test_the_index_links_every_page() -> None:
    links = set(re.findall(r"\]\(([^)#]+)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "reference"}
    of_agents = {name for name in pages if name.startswith("agents/")}  # agents.md links them
    assert pages - of_agents - links == {"index.md"}


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)]+)\)", prose):
            name, _, anchor = target.partition("#")
            if "://" in target or name.endswith("performance.md"):
                continue
            file = page.parent / name if name else page
            if not file.is_file() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
