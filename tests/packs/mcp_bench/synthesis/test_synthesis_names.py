from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthesis_samples import GIT, TIME, tool

from pytest_agentbench.packs.mcp_bench.synthesis.base import Catalogue
from pytest_agentbench.packs.mcp_bench.synthesis.checks import find_names, split_words

PARKS = Catalogue("National Parks", (tool("National Parks", "findParks", "Search for national parks by state"),))
MATH = Catalogue(
    "Math MCP",
    (tool("Math MCP", "median", "The median of numbers"), tool("Math MCP", "add", "Adds two numbers; basic math")),
)
REDDIT = Catalogue("Reddit", (tool("Reddit", "fetch_reddit_hot_threads", "Hot threads of a subreddit on Reddit"),))
HUB = Catalogue("Hugging Face", (tool("Hugging Face", "search-models", "Models of the Hugging Face Hub"),))
NIXOS = Catalogue("NixOS", (tool("NixOS", "info", "Info on a package"),))
EVERYTHING = Catalogue("Everything", (tool("Everything", "echo", "Echoes back the input"),))
ALL = (NIXOS, EVERYTHING, TIME, GIT, PARKS, MATH, REDDIT, HUB)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What does reddit say?", "reddit"),
        ("I saw it on Hugging Face", "Hugging Face"),
        ("on the huggingface hub", "huggingface"),
        ("look into our Git history", "Git"),
        ("the nixos channel", "nixos"),
        ("could you ask the time server", "time server"),
        ("just use Time for that", "Time"),
        ("with the Math MCP please", "Math MCP"),
        ("from the National Parks data", "National Parks"),
        ("call get_current_time first", "get_current_time"),
        ("GET_CURRENT_TIME", "GET_CURRENT_TIME"),
        ("please get current time there", "get current time"),
        ("use findparks", "findparks"),
        ("with search-models", "search-models"),
        ("run `median` over it", "`median`"),
        ("the median tool knows", "median tool"),
        ("我想用Reddit查一下", "Reddit"),
    ],
)
def test_a_name_is_found(text: str, found: str) -> None:
    reasons = list(find_names(text, ALL))
    assert any(repr(found) in reason.text for reason in reasons), reasons
    assert {reason.kind for reason in reasons} == {"name"}


@pytest.mark.parametrize(
    "text",
    [
        "What time is it? Time flies, and I can't find the time.",
        "Which national parks are worth it? National parks are crowded.",
        "the median and the mean, basic math, search for it, add them",
        "I need to convert the time to Tokyo's",
        "Everything counts, tell me everything",
        "our git history",
        "a subreddit, some digits, legit reasons",
        "get the current time",
    ],
)
def test_ordinary_words_are_no_names(text: str) -> None:
    assert list(find_names(text, ALL)) == []


@pytest.mark.parametrize("name", ["get_current_time", "getCurrentTime", "GetCurrentTime", "get-current-time"])
def test_the_words_of_a_name(name: str) -> None:
    assert split_words(name) == ["get", "current", "time"]


names = st.from_regex(r"[a-z]{2,8}(_[a-z]{2,8}){1,3}", fullmatch=True)


@pytest.mark.slow
@settings(max_examples=40)
@given(names, st.text(), st.text())
def test_a_tool_that_is_named_is_found_in_any_text(name: str, before: str, after: str) -> None:
    catalogue = Catalogue("Zz Server", (tool("Zz Server", name),))
    assert any(reason.kind == "name" for reason in find_names(f"{before} {name.upper()} {after}", [catalogue]))


@settings(max_examples=40)
@given(names, st.text(alphabet="ABCDEFXYZ0123456789_", min_size=1))
def test_a_name_within_a_longer_word_is_none(name: str, more: str) -> None:
    catalogue = Catalogue("Zz Server", (tool("Zz Server", name),))
    assert list(find_names(name + more, [catalogue])) == []


@pytest.mark.slow
@given(st.text(min_size=1), st.text(min_size=1), st.text())
def test_any_name_and_any_text_can_be_checked(server: str, name: str, text: str) -> None:
    list(find_names(text, [Catalogue(server, (tool(server, name, text),))]))
