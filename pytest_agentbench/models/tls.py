"""The certificates of this machine, for all that speaks HTTPS."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates that HTTPS is checked by. Reading them takes some 50 ms of CPU, so they are read once."""
    import httpx2

    return httpx2.create_ssl_context()
