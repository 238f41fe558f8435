"""What a server sent, as text that a model can read."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.workspaces import ResourceLimits, bubblewrap_problem
from pytest_agentbench.workspaces.sandboxes.isolated import Isolation, run_isolated

MAX_TEXT = 200_000
"""How many characters of a page are kept."""

_READER = Path(__file__).with_name("html_reader.py")
_READ_SECONDS = 10.0
_READER_LIMITS = ResourceLimits(cpu_seconds=20, memory_bytes=2**30, processes=64)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)


class UnreadableError(AgentbenchError):
    """A page whose text could not be had."""


@cache
def can_read_html() -> bool:
    """Whether the library for it is installed (the extra `web`)."""
    return find_spec("resiliparse") is not None


def is_text(media_type: str) -> bool:
    """Whether a body of that type is text."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


async def readable(body: bytes, media_type: str, charset: str | None) -> str:
    """The text of a body that is text, its first MAX_TEXT characters and a note of the rest. Raises UnreadableError.

    Of HTML it is what a browser shows, with the links' targets, its title first. HTML can keep a parser busy for
    hours, or break it: it is read in a process of its own, in bubblewrap where that is to be had.
    """
    length, text = await _shown(body, charset) if media_type in _HTML else _decoded(body, charset)
    return text if length <= MAX_TEXT else f"{text}\n[... {length - MAX_TEXT:,} characters left out ...]"


async def _shown(body: bytes, charset: str | None) -> tuple[int, str]:
    """How many characters a browser shows of HTML, and the first of them."""
    site = _library().parent
    done = await run_isolated(
        [sys.executable, "-I", "-B", str(_READER), str(site), _codec(charset) if charset else "", str(MAX_TEXT)],
        Isolation("bubblewrap" if bubblewrap_problem() is None else "local", (_READER, site), limits=_READER_LIMITS),
        seconds=_READ_SECONDS,
        stdin=body,
    )
    if done.ended.killed == "time-out":
        raise UnreadableError(f"its HTML could not be read within {_READ_SECONDS:g} s")
    if done.ended.exit_code != 0 or not done.result:
        raise UnreadableError(f"its HTML could not be read ({done.ended.killed or done.ended.output[-300:].strip()})")
    length, _, text = done.result.decode().partition("\n")
    return int(length), text


def _library() -> Path:
    found = find_spec("resiliparse")
    assert found is not None, "web_fetch is not offered without it"
    assert found.origin is not None
    return Path(found.origin).parent


def _decoded(body: bytes, charset: str | None) -> tuple[int, str]:
    try:
        text = body.decode(_codec(charset) if charset else "utf-8", "replace").removeprefix("\ufeff")
    except LookupError:  # an encoding of the web that Python does not have
        text = body.decode("utf-8", "replace")
    return len(text), text[:MAX_TEXT]


def _codec(charset: str) -> str:
    """The encoding of the web that a server means; UTF-8 where it is none, such as Python's own punycode."""
    from resiliparse.parse import encoding

    return str(encoding.map_encoding_to_html5(charset))
