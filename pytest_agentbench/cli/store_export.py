"""`agentbench store export`: all runs with their verdicts as JSONL."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_agentbench.cli.printing import printable

if TYPE_CHECKING:
    from pytest_agentbench.records import RunArtifact
    from pytest_agentbench.store import Contents, Folder

DESCRIPTION = """Print one JSON object a line: {"artifact": path, "run": the run, "evaluations": [{"path": path,
"evaluation": the verdict}, ...]}, one verdict for each evaluation profile that judged the run. Runs and verdicts whose
place others have taken are left out, unless a session has come back to them since. What cannot be read is named on
stderr and makes the exit status 1."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Beside `--output`."""
    parser.add_argument("-o", "--to", type=Path, metavar="FILE.jsonl", help="write to this file instead of stdout")


def run(args: argparse.Namespace) -> int:
    """Writes a line a run as it goes."""
    from pytest_agentbench.store import Contents

    code = 0

    def complain(problem: Exception) -> None:
        nonlocal code
        code = 1
        print(printable(str(problem)), file=sys.stderr)

    contents = Contents(args.output)
    with _target(args.to) as target:
        for line in _lines(contents, complain):
            target.write(line)
    return code


def _lines(contents: Contents, complain: Callable[[Exception], None]) -> Iterator[str]:
    from pytest_agentbench.errors import InfrastructureError
    from pytest_agentbench.store import load_run

    for folder in contents.runs():
        evaluated = [contents.folder(path) for path in contents.evaluated(folder)]
        for name, (kind, _, _) in folder.files.items():
            if kind != "run" or not contents.is_in_use(folder, name):
                continue
            path = f"{folder.path}/{name}"
            try:
                artifact = load_run(contents.output / path)
            except InfrastructureError as error:
                complain(error)
                continue
            verdicts = ",".join(_verdicts(contents, evaluated, artifact, complain))
            yield f'{{"artifact":{json.dumps(path)},"run":{artifact.model_dump_json()},"evaluations":[{verdicts}]}}\n'


def _verdicts(
    contents: Contents, folders: list[Folder], artifact: RunArtifact, complain: Callable[[Exception], None]
) -> Iterator[str]:
    """Those in the folders that are on this run, as JSON."""
    from pytest_agentbench.errors import InfrastructureError
    from pytest_agentbench.store import is_verdict_on, load_evaluation

    for folder in folders:
        for name in folder.repetitions.get(artifact.repetition, ()):
            if folder.files[name].kind != "result" or not contents.is_in_use(folder, name):
                continue
            path = f"{folder.path}/{name}"
            try:
                evaluation = load_evaluation(contents.output / path)
            except InfrastructureError as error:
                complain(error)
                continue
            if is_verdict_on(evaluation, artifact):
                yield f'{{"path":{json.dumps(path)},"evaluation":{evaluation.model_dump_json()}}}'


@contextmanager
def _target(path: Path | None) -> Iterator[IO[str]]:
    """Where lines go: stdout, or a file that is whole or not there. Raises InfrastructureError."""
    from pytest_agentbench.errors import InfrastructureError

    if path is None:
        if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
            reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise InfrastructureError(f"-o {path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
