"""Run one Python hook and report its verdict. Started as a separate program: `python -I hook_driver.py DESCRIPTOR`.

Its stdin is a JSON object with a key, the hook, the folders to import it from, the artifact, the case and
the workspace's path. It writes one JSON object to the descriptor: `{key, passed, message, metadata, outputs}`, or
`{key, error}`. Output that the hook prints, or writes to the descriptor itself, is ignored: the hook cannot know the
key, which exists only in this process's memory.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_REFERENCE_MODULES = {
    "personal_agent_eval",
    "personal_agent_eval.artifacts",
    "personal_agent_eval.artifacts.run_artifact",
}
_REFERENCE_RECORDS = {
    "RunArtifact": "RunArtifact",
    "MessageTraceEvent": "MessageEvent",
    "ToolCallTraceEvent": "ToolCallEvent",
    "ToolResultTraceEvent": "ToolResultEvent",
    "RunnerTraceEvent": "RunnerEvent",
    "FinalOutputTraceEvent": "FinalOutputEvent",
}
_FIELDS = ("passed", "message", "metadata", "outputs")


@dataclass(frozen=True)
class HookContext:
    """The second argument of a hook: the case (a `records.Case`), its folder, and the run's workspace if it has one."""

    case: Any
    case_folder: Path
    workspace: Path | None


def main(result: int) -> None:
    """Run the hook that stdin describes."""
    os.set_inheritable(result, False)
    request = json.loads(_taken())
    key = request.pop("key")
    try:
        text = json.dumps({**_run(request), "key": key}, allow_nan=False)
    except BaseException as error:  # noqa: BLE001  a hook may raise anything, SystemExit too
        text = json.dumps({"error": _described(error), "key": key})
    with os.fdopen(result, "w", encoding="ascii") as file:
        file.write(text)


def _taken() -> bytes:
    """Read and truncate stdin, a file that the parent process has open too, so that nobody can read it again."""
    content = sys.stdin.buffer.read()
    with suppress(OSError):  # a pipe is empty by now
        os.ftruncate(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return content


def _run(request: Mapping[str, Any]) -> dict[str, Any]:
    # For a checkout that is not installed, and for modules on the session's path only; last, so that they
    # hide nothing.
    sys.path += [str(Path(__file__).parents[2]), *request["folders"]]
    sys.meta_path.append(_Reference())
    hook = _load(request["hook"])
    return _verdict(hook(*_arguments(request, _wanted(hook))))


def _arguments(request: Mapping[str, Any], count: int) -> Iterator[Any]:
    """Yield the artifact and the context, as far as the hook wants them: making them takes most of a hook's time."""
    if count > 0:
        from pytest_agentbench.records.case import Case
        from pytest_agentbench.records.run import RunArtifact

        yield RunArtifact.model_validate(request["artifact"])
    if count > 1:
        case = Case.model_validate(request["case"])
        workspace = request["workspace"]
        yield HookContext(case, case.path.parent, None if workspace is None else Path(workspace))


def _load(hook: Mapping[str, str | None]) -> Callable[..., Any]:
    module = _from_file(Path(hook["path"])) if hook["path"] else importlib.import_module(hook["import_path"] or "")
    hook_function = getattr(module, hook["callable_name"] or "", None)
    if not callable(hook_function):
        raise TypeError(f"{hook['path'] or hook['import_path']} has no callable {hook['callable_name']!r}")
    return hook_function  # type: ignore[no-any-return]


def _from_file(path: Path) -> ModuleType:
    sys.path.append(str(path.parent))  # for modules next to it
    name = f"agentbench_hook_{path.stem}"
    from pytest_agentbench.config.source_imports import import_sources_below, source_spec  # which is on the path by now

    import_sources_below([os.path.realpath(path.parent)])
    spec = source_spec(name, path)
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wanted(hook: Callable[..., Any]) -> int:
    """Return how many of `(artifact, context)` the hook takes."""
    kinds = [parameter.kind for parameter in inspect.signature(hook).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2
    return min(
        2, sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    )


def _verdict(returned: Any) -> dict[str, Any]:
    if isinstance(returned, bool):
        return {"passed": returned}
    if isinstance(returned, Mapping):
        fields = dict(returned)
        if unknown := fields.keys() - set(_FIELDS):
            raise TypeError(f"the hook returned the keys {sorted(map(str, unknown))}, expected some of {list(_FIELDS)}")
    elif hasattr(returned, "passed"):
        fields = {name: getattr(returned, name, None) for name in _FIELDS}
    else:
        raise TypeError(f"the hook returned {_kind(returned)}, expected a bool, a mapping or a result with `passed`")
    if not isinstance(fields.get("passed"), bool):
        raise TypeError(f"the hook returned `passed` as {_kind(fields.get('passed'))}, expected True or False")
    message, metadata, outputs = (fields.get(name) for name in _FIELDS[1:])
    return {
        "passed": fields["passed"],
        "message": None if message is None else str(message),
        "metadata": _plain(metadata),
        "outputs": _plain(outputs),
    }


def _plain(value: Any) -> dict[str, Any]:
    """Return a mapping as plain JSON; a value without a JSON form becomes its repr."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"the hook returned {_kind(value)} as metadata or outputs, expected a mapping")
    plain: dict[str, Any] = json.loads(json.dumps({str(key): item for key, item in value.items()}, default=repr))
    return plain


def _described(error: BaseException) -> str:
    """Describe the exception, with the line of the hook that it came from."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    text = f"{type(error).__name__}: {error}"
    if own:
        text += f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    return text


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen") or os.path.dirname(importlib.__file__) in filename


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"{type(value).__name__} {str(value)[:60]!r}"


class _Reference(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import our records for hooks that import the reference system's, if that is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a package for each of its names."""
        is_reference = name in _REFERENCE_MODULES
        if is_reference:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill in the records."""
        if module.__name__ == "personal_agent_eval":
            return
        from pytest_agentbench.records import run

        module.__dict__.update({name: getattr(run, ours) for name, ours in _REFERENCE_RECORDS.items()})


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # not waiting for threads that the hook left behind
