from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.packs.research.fact.citations import (
    Addresses,
    Citation,
    canonical_url,
    group_by_page,
    list_references,
    resolve_addresses,
)


@pytest.mark.parametrize(
    "spelling",
    [
        "https://Example.org/a/b?q=1",
        "HTTPS://example.org:443/a/b?q=1",
        "https://example.org/a/b?q=1#section-2",
        "https://example.org/a/b?q=1#:~:text=so%20it%20says",
        "https://example.org/a/b?utm_source=chatgpt.com&q=1",
        "https://example.org/a/b?q=1&UTM_Campaign=x&gclid=7",
        " https://example.org./a/b?q=1. ",
        "https://example.org/a/%62?q=1。",
    ],
)
def test_one_page_in_several_spellings(spelling: str) -> None:
    assert canonical_url(spelling) == "https://example.org/a/b?q=1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/", "https://example.org/"),
        ("http://example.org/A", "http://example.org/a"),
        ("http://example.org:8080/", "http://example.org/"),
        ("http://example.org/?q=1&p=2", "http://example.org/?p=2&q=1"),
        ("http://example.org/a", "http://example.org/a/"),
        ("http://example.org/%2F", "http://example.org//"),
    ],
)
def test_addresses_that_may_be_different_pages_stay_apart(one: str, other: str) -> None:
    assert canonical_url(one) != canonical_url(other)


def test_canonical_urls_keep_the_parts_that_servers_see() -> None:
    assert canonical_url("http://example.org/?q=%B2%E9&utm_medium=x&empty") == "http://example.org/?q=%B2%E9&empty"
    assert canonical_url("http://[::1]:80/x_(y)") == "http://[::1]/x_(y)"
    assert canonical_url("https://例子.cn/文?问=答") == "https://例子.cn/%E6%96%87?%E9%97%AE=%E7%AD%94"


@pytest.mark.parametrize(
    "text", ["", "doi:10.1/x#y", "see the annual report", "http://", "https://[::1", "http://a:b/"]
)
def test_text_that_is_not_an_address_is_unchanged(text: str) -> None:
    assert canonical_url(text) == text


@given(st.one_of(st.text(), st.from_regex(r"https?://[ -~\ud800-\uffff]*", fullmatch=True)))
@example("http://a/\ud800")
@example("http://a/%2E")
@example("http://a/b.#c")
@example("http://a/?\t")
def test_a_canonical_address_is_its_own(text: str) -> None:
    address = canonical_url(text)
    assert canonical_url(address) == address


WORD = st.text("abcxyz01", min_size=1, max_size=5)


@given(WORD, st.lists(st.tuples(WORD, WORD), max_size=4), st.integers(0, 4), WORD)
def test_tracking_parameters_do_not_change_the_canonical_url(
    path: str, pairs: list[tuple[str, str]], at: int, said: str
) -> None:
    query = [f"{key}={value}" for key, value in pairs]
    tracked = [*query[:at], f"utm_{said}={said}", *query[at:]]
    plain = canonical_url(f"https://example.org/{path}?{'&'.join(query)}")
    assert canonical_url(f"https://example.org/{path}?{'&'.join(tracked)}#{said}") == plain
    assert urlsplit(plain).path == f"/{path}"


CITATIONS = st.lists(
    st.builds(
        Citation,
        fact=st.sampled_from(["A.", "A. ", "B  b.", "B b.", "C."]),
        ref_idx=st.sampled_from(["1", "2", ""]),
        url=st.sampled_from(
            ["", "  ", "http://a.org", "http://A.org:80/#x", "https://b.org/?utm_source=x", "no address"]
        ),
    )
)


@given(CITATIONS)
def test_pages_have_every_statement_of_theirs_once(citations: list[Citation]) -> None:
    pages = group_by_page(citations)
    expected = {(canonical_url(each.url), " ".join(each.fact.split())) for each in citations}
    found = [(url, " ".join(fact.split())) for url, facts in pages.items() for fact in facts]
    assert len(found) == len(expected)
    assert set(found) == expected
    assert list(pages) == list(dict.fromkeys(canonical_url(each.url) for each in citations))


LIST = """\
A statement.[1] Another.[7]

1. No reference: http://body.example.org/

## References
[1] [2]: A title, 2024
https://a.example.org/x_(y)
[^3]: <https://b.example.org>
4. A book (Berlin), https://c.example.org/book.
5) Nothing on the web.
[1] https://second.example.org/
"""


def test_addresses_come_from_the_list_of_references() -> None:
    assert list_references(LIST) == {
        "1": "https://a.example.org/x_(y)",
        "2": "https://a.example.org/x_(y)",
        "3": "https://b.example.org",
        "4": "https://c.example.org/book.",
    }


def test_a_marker_that_points_nowhere_gets_no_address() -> None:
    citations = [
        Citation("A.", "1", ""),
        Citation("B.", "7", ""),
        Citation("C.", "", ""),
        Citation("D.", "1", "https://b.example.org"),
    ]
    found = [each.url for each in resolve_addresses(citations, LIST)]
    assert found == ["https://a.example.org/x_(y)", "", "", "https://b.example.org"]


def test_an_address_that_the_judge_has_made_up_is_not_believed() -> None:
    said = ["http://169.254.169.254/latest", "https://c.example.org/", "https://a.example.org/x", "file:///etc/passwd"]
    found = resolve_addresses([Citation("A.", "", each) for each in said], LIST)
    assert [each.url for each in found] == [""] * 4
    assert resolve_addresses([Citation("A.", "3", "https://b.example.com")], LIST)[0].url == "https://b.example.org"


TEXT = """\
见https://a.org/x，和https://b.org/文。其他. (https://c.org/y_(z)) [3](https://d.org/r) https://e.org/1,https://f.org/2;
**https://g.org/b** https://h.org/s[3][4] https://i.org/p\\_q?a=1&amp;b=2 <https://j.org/> `https://k.org/k`
www.l.org/l. m.org/articles/1, https://web.archive.org/web/2020/https://n.org/ doi:10.1/X
https://o.org/?utm_source=chatgpt.com&id=3
"""


@pytest.mark.parametrize(
    "said",
    [
        *("https://a.org/x", "https://A.org:443/x#part", "https://b.org/%E6%96%87", "https://c.org/y_(z)"),
        *("https://d.org/r", "https://e.org/1", "https://f.org/2", "https://g.org/b", "https://h.org/s"),
        *("https://i.org/p_q?a=1&b=2", "https://j.org", "https://k.org/k", "https://www.l.org/l"),
        *("https://m.org/articles/1", "https://web.archive.org/web/2020/https://n.org/", "doi:10.1/X"),
        *("https://o.org/?id=3", "https://o.org/?utm_source=chatgpt.com&id=3"),
    ],
)
def test_addresses_are_found_in_any_prose(said: str) -> None:
    assert Addresses(TEXT).find(said) == said


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("http://a.org/X/", "https://a.org/x"),
        ("www.l.org/l", "https://www.l.org/l"),
        ("http://l.org/l", "https://www.l.org/l"),
        ("https://www.m.org/articles/1", "https://m.org/articles/1"),
    ],
)
def test_an_address_in_another_spelling_is_taken_as_the_article_has_it(said: str, meant: str) -> None:
    assert Addresses(TEXT).find(said) == meant


@pytest.mark.parametrize(
    "said",
    [
        *("", "https://a.org/", "https://a.org", "https://a.or", "https://a.org/x/y", "https://c.org/y_", "http://"),
        *("https://evil.org/a.org/x", "https://a.org@evil.org/x", "https://o.org/?id=4", "ftp://a.org/x", "//a.org/x"),
    ],
)
def test_an_address_that_the_article_lacks(said: str) -> None:
    assert Addresses(TEXT).find(said) is None


@given(WORD.map("https://{}.example.org/".format), st.text(max_size=20))
def test_every_address_of_an_article_is_found_behind_any_text(address: str, text: str) -> None:
    assert Addresses(f"{text} {address} {text}").find(address) == address


@pytest.mark.parametrize(
    "piece",
    [
        *("https://", "https://a)]}])", "a.b/"),
        *(pytest.param(piece, marks=pytest.mark.slow) for piece in ("www.", "https://a.org/)", "-", "(", "\\")),
    ],
)
def test_addresses_of_long_articles_are_found_in_time_that_grows_with_their_length(piece: str) -> None:
    with at_most(2):
        Addresses(piece * (200_000 // len(piece))).find("https://b.org/")


@pytest.mark.parametrize(
    "piece", ["[1]\n", "[1] ", "\n", "1. ", "[1] a\n", "# References\n", "[1] http://", "[1] http://(", "(", "\n \n[1]"]
)
def test_long_articles_are_read_in_time_that_grows_with_their_length(piece: str) -> None:
    article = "[1] https://a" + piece * (400_000 // len(piece)) + "\n# References\n1. " + piece * 1_000
    with at_most(2):
        list_references(article)
