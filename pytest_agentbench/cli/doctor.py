"""`agentbench doctor [PATH]`: check this machine for the requirements of cases, with a remedy for each missing one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_agentbench.cli.findings import Finding


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "doctor",
        help="check that this machine can run the cases",
        description="Try the sandboxes of this machine, look for images, MCP programs and keys, and list the cases "
        "that would be skipped. Programs and endpoints of files are started and asked only with --live. Exit status 1 "
        "if something that the cases need under their profiles does not work.",
    )
    parser.add_argument(
        "path", nargs="?", type=Path, default=Path(), metavar="PATH", help="folder or case (default: .)"
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="only the profiles of this name (default: agentbench_profile of pytest's configuration, else all)",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="list, and then do: ask the endpoints of models.yaml and of judges with their keys, run container engines "
        "that profiles name, and a command in a container of each image",
    )
    parser.add_argument(
        "--model",
        metavar="ID",
        help="with --live: probe only this model, with at most 12 small requests, and report its endpoint's features",
    )
    parser.add_argument("--yes", action="store_true", help="with --model: send the requests without asking first")
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --model: write the settings that the probes found into the entry of models.yaml",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead")


def run(args: argparse.Namespace) -> int:
    """Print the findings and return the exit status. Values of keys are never shown."""
    import asyncio

    if args.model is not None:
        return _probe(args)
    from pytest_agentbench.cli.doctor_examination import examine
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.secrets.redaction import Redactor

    (path,) = require_existing([args.path])
    profile = args.profile or _find_profile(path)
    findings = asyncio.run(examine(path, profile, args.output, _announce if args.live else None))
    lacking = [finding for finding in findings if finding.is_error]
    if args.json:
        document = {"works": not lacking, "findings": [finding.to_json() for finding in findings]}
        print(json.dumps(Redactor().value(document), indent=2, ensure_ascii=False))
    else:
        # Findings quote commands and addresses of files, which may hold keys.
        for line in _write_lines(findings, len(lacking)):
            print(Redactor().text(line))
    return int(bool(lacking))


def _find_profile(path: Path) -> str | None:
    """Return the profile that pytest's configuration names for a session of the path, None if it names none."""
    from pytest_agentbench.cli.places import project_folder
    from pytest_agentbench.config.pytest_files import PROFILE, read_pytest_options

    names = read_pytest_options(str(project_folder(path))).get(PROFILE)
    return names[0] if names else None


def _probe(args: argparse.Namespace) -> int:

    if not args.live:
        raise ConfigError("--model asks an endpoint, so it needs --live")
    from pytest_agentbench.cli.doctor_model import run as probe

    return probe(args)


def _announce(actions: Sequence[str]) -> None:
    from pytest_agentbench.secrets.redaction import Redactor

    redactor = Redactor()
    for action in actions or ["nothing: no file names a model, an engine or an image"]:
        print(printable(redactor.text(f"--live: {action}")), file=sys.stderr, flush=True)


def _write_lines(findings: Sequence[Finding], lacking: int) -> list[str]:
    from pytest_agentbench.cli.findings import write_lines

    verdict = "Everything that is needed here works."
    if lacking:
        verdict = f"Needed parts that do not work: {lacking}."
    if untried := sum(finding.untried for finding in findings):
        verdict += f" Not tried without --live: {untried} of the above."
    return [*write_lines(findings), verdict]
