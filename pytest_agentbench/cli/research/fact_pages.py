"""How the pages that reports cite are fetched."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.research.options import add

if TYPE_CHECKING:
    from pytest_agentbench.research.fact.rows import Contents

_AT_ONCE = 50


def add_pages(parser: argparse.ArgumentParser) -> None:
    """What may be fetched, and how much at once."""
    from pytest_agentbench.options import parse_positive

    group = parser.add_argument_group(
        "the pages", "They are fetched from here, or by the Jina reader where JINA_API_KEY is set."
    )
    add(
        group,
        "--allow_private",
        type=_network,
        action="append",
        default=[],
        metavar="NETWORK",
        help="fetch from this address or network too though it is not public; repeatable",
    )
    text = "pages at once (default: %(default)s)"
    add(group, "--page_concurrency", type=parse_positive, default=_AT_ONCE, metavar="N", help=text)


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, such as 10.0.0.0/8") from error
    return text


@asynccontextmanager
async def open_pages(args: argparse.Namespace, file: Path, warn: Callable[[str], None]) -> AsyncIterator[Contents]:
    """The pages of one call: those that a script has, else the web's. `file` is what the script may lie beside.

    Raises UnavailableError where a library is missing that reads them.
    """
    from pytest_agentbench.cli.research.judge import scripted_pages
    from pytest_agentbench.config import NetworkSettings
    from pytest_agentbench.research.pages import Pages, PageSettings
    from pytest_agentbench.research.scripted_pages import ScriptedPages

    if scripted := scripted_pages(args, file):
        yield ScriptedPages(scripted)
        return
    network = NetworkSettings(allow_private=tuple(args.allow_private))
    settings = replace(PageSettings.of(network), concurrency=args.page_concurrency)
    if settings.jina_key is not None:
        warn("the Jina reader fetches the pages, as JINA_API_KEY is set")
    async with Pages(args.kept, settings) as pages:
        yield pages
