"""An agent that searches the pages of a manual by common words, and a metric of its search."""

from pathlib import Path

import pytest

from pytest_agentbench import ReportedCall, RunOutput, metric

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("manual/*.txt")}


def words(text):
    return {word.strip(".,?").lower() for word in text.split()}


def search(question):
    return max(sorted(PAGES), key=lambda page: len(words(question) & words(PAGES[page])))


def say(question, page):
    lines = PAGES[page].splitlines()
    return max(lines, key=lambda line: len(words(question) & words(line)))


def search_and_say(case):
    question = case.messages[-1].content
    page = search(question)
    call = ReportedCall(name="search", arguments={"query": question}, result=page)
    return RunOutput(output=say(question, page), tool_calls=(call,))


@pytest.fixture(scope="session")
def agentbench_runner():
    return search_and_say


@metric("found_page", trace=True)
def found_page(case, artifact, page=""):
    results = [event.content for event in artifact.trace if event.type == "tool_result"]
    return float(page in results)
