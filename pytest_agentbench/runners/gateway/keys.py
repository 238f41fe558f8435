"""Find the API keys of a request, in headers and query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

NO_KEY = "none"
"""The key of a gateway that requires none: only the run's agent can reach its socket."""

RUN_HEADER = "x-agentbench-run"
"""Names the run by its token, for clients whose key and URL are set once for all runs."""

_HEADERS = (RUN_HEADER, "x-api-key", "x-goog-api-key", "api-key")
_MOST_OF_A_PATH = 200


def list_keys(headers: Mapping[str, str], query: str) -> Iterator[str]:
    """Yield the keys of a request, by its headers (their names in lower case) and its query."""
    for name in _HEADERS:
        if value := headers.get(name):
            yield value
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme and (key := value.strip() or scheme):
        yield key
    yield from (value for name, value in parse_qsl(query) if name == "key")


def name_path(path: str, token: str | None) -> str:
    """Return a path for traces and errors: shortened, and without the run's token."""
    bare = path if token is None else path.removeprefix(f"/r/{token}")
    return bare[:_MOST_OF_A_PATH] or "/"
