"""The package's exceptions. Every message has the place, the actual and the expected value, and the remedy."""

from __future__ import annotations

import re
import sys

from pytest_agentbench.terminal_text import visible

WINDOWS = "pytest-agentbench runs cases on Linux and macOS; on Windows, use WSL"
"""The message of sessions with cases and of commands on Windows."""
_VARYING = r"(?<!HTTP )(?<!\w)[\w.-]*\d[\w.-]*"


class AgentbenchError(Exception):
    """Root of everything this package raises on purpose."""


class ConfigError(AgentbenchError):
    """A file or an option is invalid. The text has a line `file:line:column: ...` for every problem of the file.

    Quoted text cannot steer a terminal.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class CodeNotRun(ConfigError):
    """The dataset is read by code, which this command does not run: that is no fault of the dataset."""


class InfrastructureError(AgentbenchError):
    """A failure outside of the agent, which is not a result of the agent: pytest reports an error."""


UNREACHABLE = "unreachable"
"""The code of a ProviderError of an endpoint that is dead: nothing that asks it is worth starting."""


class ProviderError(InfrastructureError):
    """A model's endpoint gave no usable reply after all retries, or refused the request.

    `reason` is the run's end reason (`records.run.EndReason`), `detail` more about that end
    (`records.run.EndDetail`), `partial` the text that the model had written until then.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retryable: bool = False,
        reason: str = "provider_error",
        detail: object = None,
        partial: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.reason = reason
        self.detail = detail
        self.partial = partial


class ToolsRefusedError(ConfigError):
    """The case's agent takes no tools or MCP servers. A case that only a variant gives them to is skipped."""


class UnwritableError(InfrastructureError):
    """A paid result cannot be stored: nothing more should be paid for."""


class UnreachableError(InfrastructureError):
    """The shared store does not answer: its results would be paid for again."""


class DamagedObjectError(InfrastructureError):
    """An object of the shared store is a link, no plain file, or not the content of its name: it counts as missing."""


class BatchWaitsError(InfrastructureError):
    """A batch is not done in the time that the session waits for it: a later session collects it."""


class SandboxError(InfrastructureError):
    """The run's workspace or sandbox is gone or could not be made."""


class McpServerError(InfrastructureError):
    """An MCP server that a run needs did not come up, or does not list its tools."""


class McpCallError(AgentbenchError):
    """One call of an MCP server's tool failed: the agent gets the error, and its run goes on."""


class McpServerDiedError(McpCallError):
    """A call failed because its server ended before it had answered."""


class JudgeError(InfrastructureError):
    """No judge run gave a verdict that keeps the contract."""


class UnavailableError(AgentbenchError):
    """A case needs something that is missing here (a runner, a key, a program): pytest skips it with this reason."""


class UnsupportedError(UnavailableError):
    """A model's endpoint does not support something that the case needs, such as tools."""


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the code that raised it. False: it ends the session or its task.

    `sys.exit()`, `pytest.fail()` and a CancelledError that the code itself raises are failures of a plugin's code.
    """
    if isinstance(error, Exception):
        return True
    asyncio = sys.modules.get("asyncio")  # not imported: `agentbench --help` needs none of it
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return not isinstance(error, KeyboardInterrupt | GeneratorExit)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return True
    return task is None or not task.cancelling()


def as_alike(text: str) -> str:
    """Return an error's text without the parts that differ in each run (numbers, times, ids), to compare errors."""
    return re.sub(_VARYING, "#", text)


def missing(module: str, extra: str) -> str | None:
    """Return the remedy for an extra whose module is not installed; None if it is installed."""
    from importlib.util import find_spec

    if find_spec(module) is not None:
        return None
    return f"needs the module {module}; install it with: pip install 'pytest-agentbench[{extra}]'"


def find_chart_problem(name: str) -> str | None:
    """Return why a chart cannot be written to a file of this name: it ends as another format than SVG does. None if it
    can.
    """
    if "." not in name or name.lower().endswith(".svg"):
        return None
    return f"found {name}, expected a name that ends in .svg"
