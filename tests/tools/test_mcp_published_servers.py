"""The published servers as they are: listed, called, refused, timed out, killed in mid-call and started again."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from support.docker_here import bubblewrap_lacks
from support.published_servers import PUBLISHED, SANDBOXES, Driven, Published, connected, drive, lacks

pytestmark = pytest.mark.full


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.name)
def test_a_published_server_is_driven(published: Published, kind: Literal["local", "bubblewrap"]) -> None:
    reason = lacks(published) or (bubblewrap_lacks() if kind == "bubblewrap" else None)
    if reason is not None:
        pytest.skip(reason)

    async def whole() -> Driven:
        async with connected(published, kind) as (connection, workspace):
            return await drive(published, connection, workspace)

    driven = asyncio.run(whole())
    assert driven.tools == published.tools
    assert published.call[2] in driven.result
    assert driven.refused
    assert driven.time_out == f"{published.name} did not answer within 0.3 s"
    assert driven.death == f"{published.name} ended before it had answered; the next call starts it again"
    assert published.call[2] in driven.result_after_restart
    assert driven.starts == 2
