"""The runners that need no pack and no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.runners.base import Runner
from pytest_agentbench.runners.chat import llm_probe

BUILTIN_RUNNERS: Mapping[str, Runner] = MappingProxyType({"llm_probe": llm_probe})
"""`runner.type` of a case -> how it is run."""
