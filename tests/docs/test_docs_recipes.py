"""Each recipe is a folder whose README is run in a copy, and docs/recipes.md lists it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import Project, problems

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.parent for path in (ROOT / "recipes").glob("*/README.md"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_runs_as_its_readme_shows(recipe: Path, tmp_path: Path) -> None:
    shutil.copytree(recipe, tmp_path / "project", ignore=shutil.ignore_patterns("outputs", "__pycache__", ".*cache"))
    with Project(tmp_path / "project") as project:
        found = list(problems((recipe / "README.md").read_text(encoding="utf-8"), project))
    assert not found, f"{recipe.name}: " + "\n\n".join(found)


def test_every_recipe_is_listed() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [recipe.name for recipe in RECIPES if f"`recipes/{recipe.name}`" not in page] == []


@pytest.mark.slow
def test_the_nightly_workflow_is_what_github_takes() -> None:
    file = ROOT / "recipes" / "nightly-ci" / ".github" / "workflows" / "nightly.yml"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
