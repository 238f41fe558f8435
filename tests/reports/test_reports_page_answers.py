"""Answers in Markdown on the page of a run, in a real browser."""

from __future__ import annotations

import time

import pytest
from support.browser import NEEDS_BROWSER, new_page
from support.cpu_seconds import slowness
from support.run_pages import opened, run, texts
from support.stored_runs import StoredRuns, answered, said

from pytest_agentbench.reports.html.page import join_modules, write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

ANSWER = """## Refund

Your refund of **order 88213** is *under way*, see [the policy](https://shop.example/returns).
On its own line: snake_case_name, 2 * 3 * 4.

1. We got it
   - on Monday
2. We checked `it`

| Item | Price |
|------|------:|
| Rope | 12.50 |

```python
total = **kwargs
```
> quoted
"""
NOT_RENDERED = (
    "**Hello** ![picture](https://evil.example/p.png)",
    "<img src=x onerror=window.taken=1><script>window.taken=1</script>",
    "[run](javascript:window.taken=1)",
    "[file](file:///etc/passwd)",
    "[bank](https://bank.example@evil.example/)",
)


@pytest.fixture
def answer_page(tmp_path):
    """Return a function that writes the page of one run with an answer, and returns its path and the run's address."""

    def write(answer):
        stored = StoredRuns(tmp_path / "outputs")
        nodeid = stored.add("order", trace=[said("user", "Where?"), said("assistant", "- one"), answered(answer, 1.0)])
        write_page(stored.report, tmp_path / "report.html", output=stored.output)
        return tmp_path / "report.html", run(nodeid)

    return write


def test_an_answer_in_markdown_is_rendered_and_raw_on_request(program, answer_page):
    with opened(program, *answer_page(ANSWER)) as shown:
        box = shown.page.locator(".answer-box .rendered")
        assert box.locator(".heading").inner_text() == "Refund"
        assert texts(shown, ".answer-box strong") == ["order 88213"]
        assert texts(shown, ".answer-box em") == ["under way"]
        assert texts(shown, ".answer-box ol > li > ul > li") == ["on Monday"]
        assert texts(shown, ".answer-box :is(td, th)") == ["Item", "Price", "Rope", "12.50"]
        assert texts(shown, ".answer-box :is(pre, blockquote)") == ["total = **kwargs", "quoted"]
        link = box.get_by_role("link")
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert "the policy (https://shop.example/returns)." in box.inner_text()
        assert "\nOn its own line: snake_case_name, 2 * 3 * 4." in box.inner_text()
        assert texts(shown, ".event .rendered li")[0] == "one"
        shown.page.locator(".answer-box").get_by_role("button", name="Raw").click()
        assert shown.page.locator(".answer-box pre").inner_text() == ANSWER
        shown.page.locator(".answer-box").get_by_role("button", name="Rendered").click()
        assert box.is_visible()


def test_pictures_markup_and_other_addresses_of_an_answer_stay_text(program, answer_page):
    with opened(program, *answer_page("\n\n".join(NOT_RENDERED))) as shown:
        assert texts(shown, ".answer-box .rendered p") == [NOT_RENDERED[0].replace("**", ""), *NOT_RENDERED[1:]]
        assert shown.page.locator(".answer-box :is(a, img, script)").count() == 0
        assert shown.value("window.taken") is None
        assert len(shown.requests) == 1


def test_an_answer_without_markup_is_shown_as_it_is(program, answer_page):
    answer = "It left  our warehouse.\n   2 * 3 * 4 is 24"
    with opened(program, *answer_page(answer)) as shown:
        assert shown.page.locator(".answer-box pre").inner_text() == answer
        assert shown.page.locator(".answer-box").get_by_role("button", name="Raw").count() == 0


def test_no_answer_takes_long_to_render(program):
    size = 40_000
    parts = [*"*`[|\\#\t", "**a", "_a", "[a](", "> ", "- ", "  - ", "~~a", "***a ", "1. ", "| - "]
    hostile = [
        *(part * (size // len(part)) for part in parts),
        *("\n".join([part * 20] * 2_000) for part in parts),
        "\n".join(f"{'  ' * depth}- x" for depth in range(500)),
    ]
    with new_page(program) as shown:
        began = time.monotonic()
        seconds = shown.page.evaluate(
            f"""(texts) => {{ {join_modules("markdown")}
            return texts.map((text) => {{
              const began = performance.now();
              module_markdown.markdownNodes(text);
              return (performance.now() - began) / 1000;
            }}); }}""",
            hostile,
        )
        taken = time.monotonic() - began
        assert max(seconds) < 2 * slowness(), hostile[seconds.index(max(seconds))][:20]
        assert taken < 20 * slowness()
