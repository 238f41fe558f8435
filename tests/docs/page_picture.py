"""docs/page.webp, the picture in the README: `python tests/docs/page_picture.py` runs a session and takes it anew.

The session is an own agent with two models on 30 questions. Needs Chromium.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[2] / "docs" / "page.webp"
WIDTH, HEIGHT = 1200, 640
MOST_BYTES = 80_000
CAPITALS = {
    "Argentina": "Buenos Aires",
    "Australia": "Canberra",
    "Austria": "Vienna",
    "Brazil": "Brasilia",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "Egypt": "Cairo",
    "Finland": "Helsinki",
    "France": "Paris",
    "Ghana": "Accra",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "India": "New Delhi",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Mexico": "Mexico City",
    "Morocco": "Rabat",
    "Nepal": "Kathmandu",
    "Nigeria": "Abuja",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Spain": "Madrid",
    "Sweden": "Stockholm",
    "Switzerland": "Bern",
    "Turkey": "Ankara",
    "Vietnam": "Hanoi",
}
MISTAKES = {
    "small": {
        "Australia": "Sydney",
        "Brazil": "Rio de Janeiro",
        "Canada": "Toronto",
        "Morocco": "Casablanca",
        "Nigeria": "Lagos",
        "Switzerland": "Zurich",
        "Turkey": "Istanbul",
        "Vietnam": "Ho Chi Minh City",
    },
    "large": {"Nigeria": "Lagos"},
}
"""Wrong answers of each model."""
AGENT = """\
import asyncio
import json
from pathlib import Path

import pytest
from pytest_agentbench import RunOutput, Usage

ANSWERS = json.loads(Path("answers.json").read_text())
COSTS = {"small": 0.0002, "large": 0.0011}
SECONDS = {"small": 0.4, "large": 0.9}


async def assistant(case, context):
    model = context.model.model_id
    await asyncio.sleep(SECONDS[model])
    answer = ANSWERS[model][case.messages[-1].content]
    usage = Usage(input_tokens=61, output_tokens=4, total_tokens=65, cost_usd=COSTS[model])
    return RunOutput(output=answer, usage=usage)


@pytest.fixture(scope="session")
def agentbench_runner():
    return assistant
"""
MODELS = """\
schema_version: 1
models:
  - {model_id: small, label: Small model, base_url: "http://127.0.0.1:9/v1", api_key_env: none}
  - {model_id: large, label: Large model, base_url: "http://127.0.0.1:9/v1", api_key_env: none}
"""
DATASET = """\
schema_version: 1
files: [capitals.jsonl]
metrics: [{name: contains_answer, threshold: 1}]
"""


def write_project(folder: Path) -> None:
    """Write the questions, the agent with its answers, and two models."""
    questions = {country: f"What is the capital of {country}?" for country in CAPITALS}
    rows = [
        {"id": country.lower(), "question": questions[country], "answer": capital}
        for country, capital in CAPITALS.items()
    ]
    answers = {
        model: {questions[country]: f"It is {(CAPITALS | mistakes)[country]}." for country in CAPITALS}
        for model, mistakes in MISTAKES.items()
    }
    files = {
        "capitals.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "dataset.yaml": DATASET,
        "models.yaml": MODELS,
        "conftest.py": AGENT,
        "answers.json": json.dumps(answers),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def write_page(folder: Path) -> Path:
    """Run the project's session and return its page."""
    command = [sys.executable, "-m", "pytest", "--model=small", "--model=large", "--agentbench-html=report.html"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    page = folder / "report.html"
    if not page.exists():
        raise SystemExit(done.stdout + done.stderr)
    return page


def take_picture(page: Path, picture: Path) -> None:
    """Save the page's first screen. Exits if there is no Chromium, or the picture is too large for a repository."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("needs chromium (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        shown.goto(page.as_uri())
        shown.wait_for_load_state("networkidle")
        # WebP: a third of the size of PNG, which playwright's own method does not write
        screen = shown.context.new_cdp_session(shown)
        image = screen.send("Page.captureScreenshot", {"format": "webp", "quality": 85})
        picture.write_bytes(base64.b64decode(image["data"]))
        browser.close()
    if (size := picture.stat().st_size) > MOST_BYTES:
        raise SystemExit(f"{picture}: {size:,} bytes, expected at most {MOST_BYTES:,}: lower WIDTH or HEIGHT")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        project = Path(temporary, "capitals")  # the page's title
        project.mkdir()
        write_project(project)
        take_picture(write_page(project), PICTURE)
