"""What is taken of a collector's answers: its status, and no more than a little of the rest."""

from __future__ import annotations

import os
from io import BytesIO
from typing import Any

import requests
from requests.adapters import HTTPAdapter

LONGEST = 65_536
"""Bytes of an answer that are read. Nothing in it is needed, and an endless one would fill the memory."""
_PROVIDERS = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP{signal}_CREDENTIAL_PROVIDER" for signal in ("", "_TRACES", "_LOGS"))


def collector_session() -> requests.Session | None:
    """The session for an exporter; None where a variable names a provider of sessions, which the SDK then asks."""
    if any(name in os.environ for name in _PROVIDERS):
        return None
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Guarded())
    return session


class _Guarded(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Raises RequestException for a redirect: the SDK follows none, and takes it for success."""
        response = super().send(request, *args, **kwargs)
        raw = response.raw
        try:
            response.raw = BytesIO(raw.read(LONGEST, decode_content=False))
        finally:
            raw.close()
        if 300 <= response.status_code < 400:
            raise requests.RequestException(
                f"the collector redirects ({response.status_code}) to {response.headers.get('location')}, which is not "
                "followed; name its own address in OTEL_EXPORTER_OTLP_ENDPOINT"
            )
        return response
