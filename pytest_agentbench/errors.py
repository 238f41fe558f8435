"""The one tree of exceptions. Every message says where, what was found, what was expected, and what to do."""

from __future__ import annotations

import re
import sys

from pytest_agentbench.terminal_text import visible

WINDOWS = "pytest-agentbench runs cases on Linux and macOS; on Windows, use WSL"
"""What sessions with cases and commands say on Windows."""
_VARYING = r"(?<!HTTP )(?<!\w)[\w.-]*\d[\w.-]*"


class AgentbenchError(Exception):
    """Root of everything this package raises on purpose."""


class ConfigError(AgentbenchError):
    """A file or an option is wrong. The text holds every problem of the file, one `file:line:column: ...` a line.

    What it quotes cannot steer a terminal.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class CodeNotRun(ConfigError):
    """The dataset is read by code, which this command does not run: that is no fault of the dataset."""


class InfrastructureError(AgentbenchError):
    """Something around the agent failed, so the run says nothing about the agent: pytest reports an error."""


UNREACHABLE = "unreachable"
"""The code of a ProviderError of an endpoint that is dead: nothing that asks it is worth starting."""


class ProviderError(InfrastructureError):
    """A model's endpoint gave no usable reply after all retries, or refused the request.

    `reason` is how a run ends by it (`records.run.EndReason`), `detail` what more is known of that end
    (`records.run.EndDetail`), `partial` what the model had written until then.
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


class UnwritableError(InfrastructureError):
    """A paid result cannot be stored: nothing more should be paid for."""


class UnreachableError(InfrastructureError):
    """The shared store does not answer: what it holds would be paid for again."""


class DamagedObjectError(InfrastructureError):
    """An object of the shared store is a link, no plain file, or not the content of its name: it counts as missing."""


class BatchWaitsError(InfrastructureError):
    """A batch is not done in the time that the session waits for it: a later session collects it."""


class SandboxError(InfrastructureError):
    """The run's workspace or sandbox is gone or could not be made."""


class McpServerError(InfrastructureError):
    """An MCP server that a run needs did not come up, or does not list its tools."""


class McpCallError(AgentbenchError):
    """One call of a tool of an MCP server failed: the agent is told, and its run goes on."""


class JudgeError(InfrastructureError):
    """No judge run gave a verdict that keeps the contract."""


class UnavailableError(AgentbenchError):
    """A case needs what is not to be had here (a runner, a key, a program): pytest skips it with this reason."""


class UnsupportedError(UnavailableError):
    """A model's endpoint does not take what the case needs, such as tools."""


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the code that raised it. False: it ends the session or its task.

    For the code of plugins: `sys.exit()`, `pytest.fail()` and a CancelledError of its own are its failures.
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
    """Return an error's text without what differs from run to run (numbers, times, ids): equal ones are alike."""
    return re.sub(_VARYING, "#", text)


def missing(module: str, extra: str) -> str | None:
    """Return what to do where the module of an extra is not installed; None where it is."""
    from importlib.util import find_spec

    if find_spec(module) is not None:
        return None
    return f"needs the module {module}; install it with: pip install 'pytest-agentbench[{extra}]'"
