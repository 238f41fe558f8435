"""The metrics that ship with the package: importing this module registers every one of them."""

import pytest_agentbench.metrics.json_match
import pytest_agentbench.metrics.llm_judgement
import pytest_agentbench.metrics.math_equal
import pytest_agentbench.metrics.multiple_choice
import pytest_agentbench.metrics.numbers
import pytest_agentbench.metrics.text
import pytest_agentbench.metrics.tool_use  # noqa: F401
from pytest_agentbench.metrics.registry import METRICS as METRICS

BUILTIN_METRICS = METRICS.copy()
"""Those that ship with the package; `METRICS` also holds what the `metric` decorator registered since."""
