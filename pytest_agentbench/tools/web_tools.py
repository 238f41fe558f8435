"""The tools that reach the web, as far as the run profile's network settings let them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.tools.base import SearchResult, Tool, ToolContext, ToolOutput, object_schema
from pytest_agentbench.tools.fetching import Page
from pytest_agentbench.tools.network import RefusedError, checked_url, host_allowed, host_of, require_web
from pytest_agentbench.tools.taped_fetch import WEB_FETCH
from pytest_agentbench.tools.taped_search import WEB_SEARCH


async def _web_search(arguments: dict[str, Any], context: ToolContext) -> str:
    _needs_search(context)
    assert context.search is not None
    found = await context.search(arguments["query"])
    return _listing([result for result in found if _is_allowed(result.url, context)])


def _needs_search(context: ToolContext) -> None:
    require_web(context.network, WEB_SEARCH)
    if context.search is None:
        raise UnavailableError(
            "web_search has no backend: set AGENTBENCH_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY, or run with "
            "--model demo, which answers from its script"
        )


def _is_allowed(url: str, context: ToolContext) -> bool:
    """Whether a hit may be shown: where `network.hosts` names hosts, it lies on one of them."""
    if not context.network.hosts:
        return True
    try:
        return host_allowed(host_of(checked_url(url, context.network)), context.network)
    except RefusedError:
        return False


def _listing(results: Sequence[SearchResult]) -> str:
    blocks = [
        f"{number}. {result.title}\n   {result.url}\n   {result.snippet}".rstrip()
        for number, result in enumerate(results, start=1)
    ]
    return "\n".join(blocks) or "no results"


async def _web_fetch(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    _needs_fetch(context)
    assert context.fetch is not None
    checked_url(arguments["url"], context.network)  # a script and a cassette know no policy
    page = await context.fetch(arguments["url"].strip())
    context.note(WEB_FETCH, **_facts(page))
    last = page.hops[-1]
    head = f"{last.url}\nHTTP {last.status}, {page.media_type}, {page.size:,} bytes\n\n"
    return ToolOutput(head + page.text, is_error=last.status >= 400)


def _needs_fetch(context: ToolContext) -> None:
    require_web(context.network, WEB_FETCH)
    if context.fetch is None:
        raise UnavailableError(
            "web_fetch needs a library to read HTML: pip install 'pytest-agentbench[web]', or run with --model demo, "
            "which answers from its script"
        )


def _facts(page: Page) -> dict[str, Any]:
    """What the trace tells of a page: who was asked at which address, and a digest of what came."""
    return {
        "requests": [{"url": hop.url, "address": hop.address, "status": hop.status} for hop in page.hops],
        "media_type": page.media_type,
        "bytes": page.size,
        "sha256": page.sha256,
    }


WEB_TOOLS = (
    Tool(
        WEB_SEARCH,
        "Search the web and return titles, addresses and excerpts of the best pages.",
        object_schema(
            ["query"],
            query={"type": "string", "minLength": 1, "maxLength": 2000, "description": "What to find."},
        ),
        _web_search,
        _needs_search,
    ),
    Tool(
        WEB_FETCH,
        "Get a page of the web and return its text, with the targets of its links. Text only: HTML, JSON, XML, plain "
        "text; no files such as PDF or images. Scripts of the page are not run.",
        object_schema(
            ["url"],
            url={
                "type": "string",
                "minLength": 1,
                "maxLength": 4000,
                "description": "The page's whole URL, beginning with http:// or https://.",
            },
        ),
        _web_fetch,
        _needs_fetch,
    ),
)
