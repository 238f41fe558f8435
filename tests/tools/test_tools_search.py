"""Web search backends against a real endpoint on loopback that answers as the services document it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from pytest_agentbench.errors import AgentbenchError, ProviderError
from pytest_agentbench.tools.base import Search, SearchResult
from pytest_agentbench.tools.web_tools import find_search, make_brave_search, make_searxng_search, make_tavily_search

HIT = {"title": "Owls", "url": "https://example.org/owls"}


class Service(BaseHTTPRequestHandler):
    """SearXNG, Brave and Tavily in one; a query of digits is the status it answers."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        q = query["q"][0]
        if url.path == "/search" and query["format"] == ["json"]:
            self.reply(q, {"results": [{**HIT, "content": f"about {q}"}, "odd", {"title": None}]})
        elif url.path == "/res/v1/web/search":
            key = self.headers["X-Subscription-Token"]
            self.reply(q if key == "right" else "401", {"web": {"results": [{**HIT, "description": f"about {q}"}]}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.path == "/search" and self.headers["Authorization"] == "Bearer right"
        found = {"results": [{**HIT, "content": f"about {body['query']}"}]}
        self.reply(body["query"] if allowed else "401", found)

    def reply(self, query: str, found: object) -> None:
        content = b"<html>" if query == "html" else json.dumps(found).encode()
        self.send_response(int(query) if query.isdigit() else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def find(search: Search, query: str) -> list[SearchResult]:
    async def ask() -> list[SearchResult]:
        return list(await search(query))

    return asyncio.run(ask())


def test_all_backends_give_the_same_results(service: str) -> None:
    expected = SearchResult("Owls", "https://example.org/owls", "about grey owls")
    for search in (
        make_searxng_search(service),
        make_brave_search("right", service),
        make_tavily_search("right", service),
    ):
        assert find(search, "grey owls")[0] == expected


def test_malformed_hits_do_no_harm(service: str) -> None:
    assert find(make_searxng_search(service), "x")[1:] == [SearchResult("", "", "")]


@pytest.mark.parametrize("query", ["429", "500", "html"])
def test_a_failed_search_names_the_service_and_no_key(service: str, query: str) -> None:
    with pytest.raises(AgentbenchError, match="Brave answered") as error:
        find(make_brave_search("right", service), query)
    assert not isinstance(error.value, ProviderError)
    assert "right" not in str(error.value)


def test_a_refused_key_is_not_the_agents_fault(service: str) -> None:
    for search in (make_brave_search("wrong", service), make_tavily_search("wrong", service)):
        with pytest.raises(ProviderError, match="HTTP 401; check its key") as error:
            find(search, "owls")
        assert "wrong" not in str(error.value)


def test_an_unreachable_service_is_named() -> None:
    with pytest.raises(AgentbenchError, match="SearXNG could not be reached"):
        find(make_searxng_search("http://127.0.0.1:9"), "owls")


def test_the_environment_decides_the_backend(service: str) -> None:
    assert find_search({}) is None
    assert find_search({"BRAVE_API_KEY": ""}) is None
    assert find_search({"BRAVE_API_KEY": "k"}) is not None
    assert find_search({"TAVILY_API_KEY": "k"}) is not None
    search = find_search({"AGENTBENCH_SEARXNG_URL": service, "BRAVE_API_KEY": "k"})
    assert search is not None
    assert find(search, "a")[0].snippet == "about a"
