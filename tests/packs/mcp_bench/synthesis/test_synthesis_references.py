from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.mcp_bench.synthesis.checks import FORBIDDEN, find_forbidden_references


def kinds(text: str) -> list[str]:
    return [reason.kind for reason in find_forbidden_references(text, "the text")]


@pytest.mark.parametrize(
    "text",
    [
        "call https://api.example.com/v1",
        "see www.example.org/x for more",
        "file:///tmp/x",
        "用 http://example.com 查询",
    ],
)
def test_urls(text: str) -> None:
    assert kinds(text)[0] == "url"


@pytest.mark.parametrize(
    "text",
    [
        "read user-management.yaml",
        "load /home/anna/notes",
        r"open C:\data\x",
        "in ~/projects",
        "run ./start now",
        "把结果写入report.csv。",
    ],
)
def test_local_paths(text: str) -> None:
    assert kinds(text) == ["local path"]


@pytest.mark.parametrize(
    "text",
    [
        "meet at 123 Main Street",
        "from 456 Park Avenue, New York",
        "at 12 Maple Lane",
        "12 N. 5th St. is it",
        "在中山路123号见面",
    ],
)
def test_street_addresses(text: str) -> None:
    assert kinds(text) == ["street address"]


@pytest.mark.parametrize(
    "text",
    [
        "on 2024-01-15",
        "since 2024/1",
        "15.01.2024",
        "in January 2024",
        "by March 3rd",
        "on 3 March",
        "on Sept. 5, 2025",
        "2024年1月的数据",
        "到 5 月 12 日为止",
    ],
)
def test_absolute_dates(text: str) -> None:
    assert kinds(text) == ["absolute date"]


@pytest.mark.parametrize(
    "text",
    [
        "in downtown Seattle, near Times Square and the Central Park area",
        "the next 7 days, the past 3 months, the coming week",
        "papers since 2020, and CVPR 2024",
        "a Next.js or Node.js front end, e.g. with v2.1.3",
        "endpoints below /repos/{owner} and /v1/users",
        "efficiency below 85.5 %, 3/4 of them, a ratio of 1:2",
        "I may 3 times ask; in march we walk 5 miles",
        "it takes 5 Drive units",
        "whois of example.com",
        "今年3月份以来,过去3个月,未来7天",
        "路上有123号车",
    ],
)
def test_text_without_references_is_accepted(text: str) -> None:
    assert kinds(text) == []


@given(st.text(), st.sampled_from(["https://x.org/a", "notes.csv", "9 Elm Street", "2023-12-31"]), st.text())
def test_a_reference_between_blanks_is_found_in_any_text(before: str, reference: str, after: str) -> None:
    assert kinds(f"{before} {reference} {after}") != []


@given(st.text(alphabet=st.characters(exclude_categories=["N"], exclude_characters="/\\.~:")))
def test_a_text_without_numbers_and_marks_refers_to_nothing(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize("kind", FORBIDDEN)
@pytest.mark.parametrize("piece", ["1", "a.", "1 A", "/home/", "2024-", "一", "http://", "January ", "1 Aa "])
def test_a_long_text_takes_no_longer_than_it_is_long(kind: str, piece: str) -> None:
    assert len(list(FORBIDDEN[kind].finditer(piece * 20_000))) <= 20_000
