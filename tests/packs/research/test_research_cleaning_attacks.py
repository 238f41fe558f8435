"""Articles as agents write them, and as nobody should: what is left of them, and how long that takes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.packs.research.articles import clean_by_rules
from pytest_agentbench.packs.research.query_files import markdown_queries
from pytest_agentbench.packs.research.records import ArticleCounts, count_article


@pytest.mark.parametrize(
    ("article", "left"),
    [
        ("Busan grew[1], [2] by 12 %[3][4].", "Busan grew by 12 %."),
        ("增长12%[1][2]。报告【3†L10-L12】如此。", "增长12%。报告如此。"),
        ("Ranges [1-3] and lists [4, 5] and notes [^6].", "Ranges and lists and notes."),
        ("See [the report](https://a.example/x_(y)) now.", "See the report now."),
        ('See [the report](https://a.example/x "A title") now.', "See the report now."),
        ("As shown ([1](https://a.example/)).", "As shown ."),
        ("A chart: ![growth](https://a.example/g.png) here.", "A chart:  here."),
        ("More at https://a.example/x?y=z&q=1#b, he says.", "More at , he says."),
        ("Source: <https://a.example/>.", "Source: ."),
        ("Text.\n\n## References\n[1] A. https://a.example/\n[2] B.\n", "Text."),
        ("Text.\n\n**参考文献**：\n1. 张三，《报告》\n2. 李四，《研究》\n", "Text."),
        ("正文。\n\n# 主要参考资料列表\n- [标题](https://a.example/)\n- 作者，https://b.example/\n", "正文。"),
        ("Text.\n\nSources cited:\n- [A title](https://a.example/)\n- https://b.example/\n", "Text."),
        ("Text.\n\n---\n[1] [2] A page\nhttps://a.example/\n", "Text."),
        ("Text.\n\n[^1]: https://a.example/\n[^2]: https://b.example/", "Text."),
    ],
)
def test_markers_links_and_lists_of_references_go(article, left) -> None:
    assert clean_by_rules(article) == left


@pytest.mark.parametrize(
    "article",
    [
        "Steps\n1. One\n2. Two\n3. Three",
        "# References to the past\nThe port recalls them.\n- A\n- B",
        "The [draft] says (so) and a[i] stays, and 1,000 [USD] too.",
        "1. First\n\nReferences\nare what the last chapter is about.",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "来源可靠。\n1. 第一\n2. 第二",
    ],
)
def test_cleaning_preserves_ordinary_text(article) -> None:
    assert clean_by_rules(article) == article


def test_a_section_after_the_references_keeps_both() -> None:
    article = "Text.\n\n## Sources\n[1] A\n\n## Outlook\nOne\nTwo\nThree\n"
    assert "## Outlook\nOne\nTwo\nThree" in clean_by_rules(article)


@given(st.text(alphabet="ab 1[](){}!\n<>\"'#*-·（）【】†^,，.:/htpsw", max_size=200))
def test_cleaning_never_fails_adds_or_reorders(article) -> None:
    cleaned = clean_by_rules(article)
    rest = iter(article)
    assert all(character in rest for character in cleaned if not character.isspace())


@given(st.text(max_size=200))
def test_an_article_of_references_alone_may_come_out_empty_but_never_fails(text) -> None:
    assert isinstance(clean_by_rules(text), str)
    assert isinstance(clean_by_rules(f"## References\n[1] {text}"), str)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ArticleCounts(0, 0, 0)),
        ("[1][01][2] 增长 of twelve-fold", ArticleCounts(3, 2, 5)),
        ("[1, 2] [^3] [a] [-1] [１]", ArticleCounts(0, 0, 1)),
        (f"[{'9' * 5000}]", ArticleCounts(1, 1, 0)),
        ("don't café 中文ABC", ArticleCounts(0, 0, 6)),
        ("[0][00]", ArticleCounts(2, 1, 0)),
    ],
)
def test_counting(text, expected) -> None:
    assert count_article(text) == expected


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(0, 20))
def test_counts_add_up(numbers, words) -> None:
    article = " word".join(f"[{number}]" for number in numbers) + "字" * words
    assert count_article(article) == ArticleCounts(len(numbers), len(set(numbers)), max(0, len(numbers) - 1) + words)


HOSTILE = [
    *(
        "[",
        "![",
        "[a](",
        "(",
        "[1",
        "[1, ",
        "【1",
        " ",
        "\t",
        "\n",
        " \n",
        "[[",
        "[[a]",
        "[a](b(",
        "（ ",
        "# \n",
        "1. \n",
    ),
    *("http://", "https://a ", "1. http://x ", "<http://a", '[x](a "', "][", "[1] ", "- [1] x\n", "References\n", "- "),
    *("#### **Query 1: x\n", "#### **Query ", "####\n", "### \n", "“", '"\n', '#### **Query 1: "\n'),
]


@pytest.mark.slow
@pytest.mark.parametrize("read", [clean_by_rules, count_article, markdown_queries])
def test_time_grows_with_the_length_only(read) -> None:
    """Of four times the text at most some ten times the time: what is quadratic takes sixteen times, and seconds."""
    slow = []
    for unit in HOSTILE:
        for end in ("", "x\n"):
            text = unit * (100_000 // len(unit)) + end
            began = time.perf_counter()
            read(text)
            if time.perf_counter() - began > 2:
                slow.append(unit)
    assert slow == []


@given(
    st.lists(st.tuples(st.integers(1, 99), st.text("ab *", max_size=8), st.text("ab中 \"'“”", max_size=20)), max_size=5)
)
def test_queries_are_found_with_their_lines(queries) -> None:
    blocks = [f"#### **Query {number}: {title}**\n\n“{content}”\n\n* * * *\n" for number, title, content in queries]
    query_rows = markdown_queries("\n".join(blocks))
    assert [each.number for each in query_rows] == [number for number, _, _ in queries]
    text = "\n".join(blocks).split("\n")
    for each, (number, _, content) in zip(query_rows, queries, strict=True):
        assert text[each.line - 1].startswith(f"#### **Query {number}:")
        assert each.content == content.strip()


def test_the_topic_of_a_query_is_its_section() -> None:
    first, second, third = (f"#### **Query {number}: a**\nx\n" for number in (1, 2, 3))
    text = f"{first}## One\n### **Two**\n{second}#### Query 9: no\n###  \n{third}"
    assert [(each.number, each.topic) for each in markdown_queries(text)] == [(1, None), (2, "Two"), (3, None)]
