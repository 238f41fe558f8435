"""Web tools within the network settings, and their search backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import AgentbenchError, InfrastructureError, ProviderError, UnavailableError
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.connections import tls_context
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.tools.base import Page, Search, SearchResult, Tool, ToolContext, ToolOutput, object_schema
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH
from pytest_agentbench.tools.network import RefusedError, check_url, host_of, is_host_allowed, require_web

if TYPE_CHECKING:
    import httpx2


_RESULTS = 10
_SNIPPET = 500
_SECONDS = 20.0
_BRAVE = "https://api.search.brave.com"
_TAVILY = "https://api.tavily.com"


class SearchError(AgentbenchError):
    """Raised if a search backend gave no usable answer."""


def find_search(environ: Mapping[str, str]) -> Search | None:
    """Return the first backend that the environment sets up, or None.

    AGENTBENCH_SEARXNG_URL is the base URL of a SearXNG whose JSON format is enabled; BRAVE_API_KEY and TAVILY_API_KEY
    are keys of those services.
    """
    if url := environ.get("AGENTBENCH_SEARXNG_URL"):
        return make_searxng_search(url)
    if key := environ.get("BRAVE_API_KEY"):
        return make_brave_search(key)
    if key := environ.get("TAVILY_API_KEY"):
        return make_tavily_search(key)
    return None


def make_searxng_search(base_url: str) -> Search:
    """Return a search by a SearXNG instance (https://docs.searxng.org/dev/search_api.html)."""

    async def search(query: str) -> list[SearchResult]:
        parameters = {"q": query, "format": "json"}
        reply = await _request_json(
            "SearXNG", lambda client: client.get(f"{base_url.rstrip('/')}/search", params=parameters)
        )
        return _parse_results(reply.get("results"), snippet="content")

    return search


def make_brave_search(api_key: str, base_url: str = _BRAVE) -> Search:
    """Return a search by Brave Search (https://api-dashboard.search.brave.com/app/documentation/web-search)."""

    async def search(query: str) -> list[SearchResult]:
        parameters = {"q": query[:400], "count": str(_RESULTS)}  # the service's limit for queries
        url, headers = f"{base_url.rstrip('/')}/res/v1/web/search", {"X-Subscription-Token": api_key}
        reply = await _request_json("Brave", lambda client: client.get(url, params=parameters, headers=headers))
        web = reply.get("web")
        return _parse_results(web.get("results") if isinstance(web, dict) else None, snippet="description")

    return search


def make_tavily_search(api_key: str, base_url: str = _TAVILY) -> Search:
    """Return a search by Tavily (https://docs.tavily.com/documentation/api-reference/endpoint/search)."""

    async def search(query: str) -> list[SearchResult]:
        body, headers = {"query": query[:400], "max_results": _RESULTS}, {"Authorization": f"Bearer {api_key}"}
        url = f"{base_url.rstrip('/')}/search"
        reply = await _request_json("Tavily", lambda client: client.post(url, json=body, headers=headers))
        return _parse_results(reply.get("results"), snippet="content")

    return search


async def _request_json(service: str, request: Callable[[httpx2.AsyncClient], Any]) -> dict[str, Any]:
    """Return the service's reply, a JSON object. Raises SearchError, or ProviderError if the service refuses all
    searches.
    """
    import httpx2

    from pytest_agentbench.bounded.replies import MAX_LISTING, ReplyRefusedError, bounded_replies

    hooks = bounded_replies(MAX_LISTING)
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS, verify=tls_context(), event_hooks=hooks) as client:
            response = await request(client)
    except ReplyRefusedError as error:
        raise SearchError(f"{service}: {error}") from error
    except httpx2.HTTPError as error:
        raise SearchError(f"{service} could not be reached ({type(error).__name__})") from error
    if response.has_redirect_location:  # not followed, because the request contains the query and the service's key
        raise ProviderError(
            f"web_search: {service} redirects to another address (HTTP {response.status_code}), which is not followed; "
            "name the service's own address",
            code="web_search_refused",
        )
    if response.status_code in (401, 403):
        raise ProviderError(
            f"web_search: {service} refused the request with HTTP {response.status_code}; check its key or settings",
            code="web_search_refused",
        )
    if response.status_code != 200:
        raise SearchError(f"{service} answered HTTP {response.status_code}")
    try:
        reply = response.json()
    except ValueError as error:
        raise SearchError(f"{service} answered something that is not JSON") from error
    if isinstance(reply, dict):
        return reply
    return {}


def _parse_results(results: object, *, snippet: str) -> list[SearchResult]:
    if not isinstance(results, list):
        return []
    items = [item for item in results if isinstance(item, dict)]
    return [
        SearchResult(str(item.get("title") or ""), str(item.get("url") or ""), str(item.get(snippet) or "")[:_SNIPPET])
        for item in items[:_RESULTS]
    ]


def make_taped_search(search: Search | None, tape: Tape) -> Search:
    """Return a search through a tape. Without a `search` only taped results are available.

    Exceptions of a backend become SearchError and are recorded like results, because the model reads them. An
    InfrastructureError is not recorded.
    """

    async def ask(query: str) -> Sequence[SearchResult]:
        if search is None:
            raise UnavailableError("web_search has no backend, and the cassette does not have this search")
        try:
            return await search(query)
        except (InfrastructureError, SearchError):
            raise
        except Exception as error:
            raise SearchError(f"{type(error).__name__}: {error}") from error

    async def taped(query: str) -> Sequence[SearchResult]:
        return await tape.play(WEB_SEARCH, {"query": query}, lambda: ask(query), _FORM)

    return taped


def _write_answer(results: Sequence[SearchResult]) -> Answer:
    return Answer(results=tuple(asdict(result) for result in results))


def _read_answer(answer: Answer, seconds: float) -> Sequence[SearchResult]:
    return [
        SearchResult(result.get("title", ""), result.get("url", ""), result.get("snippet", ""))
        for result in answer.results or ()
    ]


def _keep_refusal(error: Exception) -> Refusal | None:
    if not isinstance(error, SearchError):
        return None
    return Refusal(code="search_error", message=str(error))


_FORM: Form[Sequence[SearchResult]] = Form(
    _write_answer, _read_answer, _keep_refusal, lambda refusal: SearchError(refusal.message)
)


async def _web_search(arguments: dict[str, Any], context: ToolContext) -> str:
    _require_search(context)
    assert context.search is not None
    results = await context.search(arguments["query"])
    return _format_results([result for result in results if _is_allowed(result.url, context)])


def _require_search(context: ToolContext) -> None:
    require_web(context.network, WEB_SEARCH)
    if context.search is None:
        raise UnavailableError(
            "web_search has no backend: set AGENTBENCH_SEARXNG_URL, BRAVE_API_KEY or TAVILY_API_KEY, or run with "
            "--model demo, which answers from its script"
        )


def _is_allowed(url: str, context: ToolContext) -> bool:
    """Return whether a hit may be shown: its host is in `network.hosts`, or that is empty."""
    if not context.network.hosts:
        return True
    try:
        return is_host_allowed(host_of(check_url(url, context.network)), context.network)
    except RefusedError:
        return False


def _format_results(results: Sequence[SearchResult]) -> str:
    blocks = [
        f"{number}. {result.title}\n   {result.url}\n   {result.snippet}".rstrip()
        for number, result in enumerate(results, start=1)
    ]
    return "\n".join(blocks) or "no results"


async def _web_fetch(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    _require_fetch(context)
    assert context.fetch is not None
    check_url(arguments["url"], context.network)  # here, because scripts and cassettes apply no policy
    page = await context.fetch(arguments["url"].strip())
    context.note(WEB_FETCH, **_describe_page(page))
    last = page.hops[-1]
    head = f"{last.url}\nHTTP {last.status}, {page.media_type}, {page.size:,} bytes\n\n"
    return ToolOutput(head + page.text, is_error=last.status >= 400)


def _require_fetch(context: ToolContext) -> None:
    require_web(context.network, WEB_FETCH)
    if context.fetch is None:
        raise UnavailableError(
            "web_fetch needs a library to read HTML: pip install 'pytest-agentbench[web]', or run with --model demo, "
            "which answers from its script"
        )


def _describe_page(page: Page) -> dict[str, Any]:
    """Return the facts about a page for the trace: URLs, addresses, and a digest of the body."""
    return {
        "requests": [{"url": hop.url, "address": hop.address, "status": hop.status} for hop in page.hops],
        "media_type": page.media_type,
        "bytes": page.size,
        "sha256": page.sha256,
    }


_TOOLS = (
    Tool(
        WEB_SEARCH,
        "Search the web and return titles, addresses and excerpts of the best pages.",
        object_schema(
            ["query"], query={"type": "string", "minLength": 1, "maxLength": 2000, "description": "What to find."}
        ),
        _web_search,
        _require_search,
        reads_only=True,
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
        _require_fetch,
        reads_only=True,
    ),
)

TOOLS = {tool.name: tool for tool in _TOOLS}
"""The tools of this module by name."""
