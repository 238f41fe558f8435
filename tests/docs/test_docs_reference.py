"""What the documentation lists is what there is."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from docs_pages import blocks

from pytest_agentbench.checks import BUILTIN_CHECKS
from pytest_agentbench.config import PlannerSettings, json_schemas
from pytest_agentbench.metrics import BUILTIN_METRICS
from pytest_agentbench.options import FLAGS, OPTIONS
from pytest_agentbench.tools import BUILTIN_TOOLS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")])
OF_OTHER_RUNNERS = {"output_artifact_present", "openclaw_workspace_file_present"}


def options_table() -> str:
    """The table of `docs/running.md`. To renew it: python tests/docs/test_docs_reference.py"""
    rows = ["| option | ini | |", "|---|---|---|"]
    rows.append(
        "| `--agentbench-model ID`, `--model ID` | `agentbench_model` | run the cases on this model (repeatable) |"
    )
    for option in OPTIONS:
        ini = f"`agentbench_{option.name.replace('-', '_')}`" if option.ini else ""
        rows.append(f"| `--agentbench-{option.name} {option.metavar}` | {ini} | {option.help.replace('|', '/')} |")
    for flag in FLAGS:
        ini = f"`agentbench_{flag.name.replace('-', '_')}`" if flag.ini else ""
        rows.append(f"| `--agentbench-{flag.name}` | {ini} | {flag.help} |")
    rows.append("| | `agentbench_configs` | the folder that holds profiles, suites and models.yaml |")
    return "\n".join(rows)


def test_the_options_table_is_up_to_date() -> None:
    assert options_table() in (DOCS / "running.md").read_text(encoding="utf-8")


def planner_table() -> str:
    """The table of the planner's settings in `docs/mcp-bench.md`."""
    fields = json_schemas()["run_profile"]["$defs"][PlannerSettings.__name__]["properties"]
    rows = ["| setting | default | |", "|---|---|---|"]
    for name, field in fields.items():
        rows.append(f"| `{name}` | `{json.dumps(field['default'])}` | {field['description']} |")
    return "\n".join(rows)


def test_the_table_of_the_planners_settings_is_up_to_date() -> None:
    assert planner_table() in (DOCS / "mcp-bench.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=["README", "index"])
def test_every_page_can_be_found(page: Path) -> None:
    links = {Path(target).name for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))}
    assert {each.name for each in DOCS.glob("*.md")} - links - {page.name} == set()


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
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


if __name__ == "__main__":
    sys.stdout.write(f"{options_table()}\n\n{planner_table()}\n")
