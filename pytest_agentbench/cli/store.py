"""`agentbench store show|why|prune|verify|repair|export`: the runs and verdicts that sessions have stored."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pytest_agentbench.cli.output import find_differences, format_difference, printable
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.terminal_text import count_text, shorten_text

if TYPE_CHECKING:
    from pytest_agentbench.records.run import RunArtifact
    from pytest_agentbench.store.contents import Contents, Folder


_FEWEST_DIGITS = 4
_DIGITS = re.compile(rf"[0-9a-f]{{{_FEWEST_DIGITS},64}}")
_NAMED = 5


def find_stored_run(contents: Contents, name: str) -> tuple[str, RunArtifact]:
    """Return the run of this name with its path in the output folder.

    A path is relative to the current folder or to the output folder; the path of a fingerprint_input.json names its
    run.

    Raises ConfigError if there is no such run, or more than one.
    """
    from pytest_agentbench.store.documents import load_run
    from pytest_agentbench.store.output_folder import RUN_LEVELS

    # Both, for report.json names runs as seen from the output folder, and shells complete from here.
    for path in (os.path.relpath(name or ".", contents.output), name):
        run = path.replace(os.sep, "/").replace(".fingerprint_input.json", ".json")
        if run.count("/") == RUN_LEVELS + 1 and contents.documents.read(run) is not None:
            return run, load_run(contents.output, run)
    if not _DIGITS.fullmatch(name):
        raise ConfigError(
            f"found {name!r}, expected the path of a stored run, or {_FEWEST_DIGITS} or more digits of its run_id or "
            "fingerprint"
        )
    # One more than is printed, to know whether there are more.
    found = list(islice(_match_digits(contents, name), _NAMED + 1))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"{contents.output}: found no run whose run_id or fingerprint begins with {name!r}")
    paths = [f"  {contents.output}/{path}" for path, _ in found[:_NAMED]] + ["  ..."] * (len(found) > _NAMED)
    raise ConfigError("\n".join([f"found several runs that begin with {name!r}, expected one; give its path:", *paths]))


def _match_digits(contents: Contents, digits: str) -> Iterator[tuple[str, RunArtifact]]:
    """Yield the runs whose run_id or fingerprint begins with the digits. Unreadable runs are skipped."""
    from pytest_agentbench.store.documents import load_run

    # The store writes JSON without blanks, so bytes can be looked for before anything is parsed.
    needles = [f'"{field}":"{digits}'.encode() for field in ("run_id", "fingerprint")]
    for folder in contents.runs():
        for name, (kind, _, _) in folder.files.items():
            path = f"{folder.path}/{name}"
            if kind != "run":
                continue
            try:
                content = contents.documents.read(path) or b""
                if any(needle in content for needle in needles):  # most are not parsed
                    run = load_run(contents.output, path)
                    if run.run_id.startswith(digits) or (run.fingerprint or "").startswith(digits):
                        yield path, run
            except (OSError, InfrastructureError):
                continue


WHY_DESCRIPTION = """Compare everything that two runs' fingerprints cover, and their run profiles. A run is named by its
path, or by at least 4 digits of its run_id or of its fingerprint, as report.json has them."""


def add_why_options(parser: argparse.ArgumentParser) -> None:
    """Add the options other than `--output`."""
    parser.add_argument("a", metavar="RUN_A", help="a stored run")
    parser.add_argument("b", metavar="RUN_B", help="another one")


def run_why(args: argparse.Namespace) -> int:
    """Print a line or a diff for each field that differs."""
    from pytest_agentbench.store.contents import Contents

    contents = Contents(args.output)
    (path_a, a), (path_b, b) = (find_stored_run(contents, name) for name in (args.a, args.b))
    for letter, path, artifact in (("A", path_a, a), ("B", path_b, b)):
        began = artifact.started_at.isoformat(" ", "seconds")
        print(f"{letter}  {printable(f'{contents.output}/{path}')}")
        print(f"   fingerprint {(artifact.fingerprint or 'none')[:12]}, {artifact.status}, {began}")
    print()
    found = list(find_differences(_read_fingerprint_input(contents, path_a), _read_fingerprint_input(contents, path_b)))
    for difference in found:
        for line in format_difference(difference):
            print(line)
    for line in _describe_difference(a, b, bool(found)):
        print(line)
    return 0


def _describe_difference(a: RunArtifact, b: RunArtifact, found: bool) -> Iterator[str]:
    if found:
        return
    if a.run_id == b.run_id:
        yield "A and B are one run."
    elif a.fingerprint == b.fingerprint:
        yield "The same input: B is another draw of it."
        yield from (
            f"{name} ended {run.status}: such a run is made again."
            for name, run in (("A", a), ("B", b))
            if run.status != "success"
        )
    else:
        yield "The stored inputs are equal: the difference is a secret, which is not stored."


def _read_fingerprint_input(contents: Contents, run: str) -> dict[str, Any]:
    """Return the input of a run's fingerprint with its run profile's settings: both decide about reuse."""
    from pytest_agentbench.store.output_folder import PROFILE_FILE

    covered = _read_document(contents, f"{run.removesuffix('.json')}.fingerprint_input.json")
    # runs/SUITE/PROFILE/MODEL/CASE/run_n.json: the profile's folder is three above.
    profile = f"{run.rsplit('/', 3)[0]}/{PROFILE_FILE}"
    if contents.documents.read(profile) is None:
        return covered
    return covered | {"run_profile": _read_document(contents, profile).get("input")}


def _read_document(contents: Contents, name: str) -> dict[str, Any]:
    from pytest_agentbench.store.documents import make_read_error

    path = contents.output / name
    try:
        content = contents.documents.read(name)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        found = json.loads(content)
    except OSError as error:
        raise make_read_error(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InfrastructureError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InfrastructureError(f"{path}: found {type(found).__name__}, expected an object")
    return found


PRUNE_DESCRIPTION = """Remove runs and verdicts that newer ones have replaced (a session with the earlier prompt or
rubric would still reuse them) unless a session has reused them since, verdicts on missing runs, and incomplete files of
killed sessions. Nothing is removed while a session is making runs there."""

_AT_WORK = "a session is making runs there; prune when it has ended"


def add_prune_options(parser: argparse.ArgumentParser) -> None:
    """Add the options other than `--output`."""
    parser.add_argument("--dry-run", action="store_true", help="name every file that would go, and remove none")
    parser.add_argument(
        "--unreadable",
        action="store_true",
        help="remove runs and verdicts that cannot be read too, and those kept aside",
    )


def run_prune(args: argparse.Namespace) -> int:
    """Print a line for each reason to remove something, and the sum."""
    from pytest_agentbench.store.contents import Contents
    from pytest_agentbench.store.maintenance import find_waste, is_session_running, remove_waste

    contents = Contents(args.output)
    if not args.dry_run and _complain_of_damage(contents):
        return 1
    found: Counter[str] = Counter()
    code = files = size = 0
    for each in find_waste(contents, unreadable=args.unreadable):
        if not args.dry_run and is_session_running(args.output):  # one may begin at any time
            print(f"{args.output}: {_AT_WORK}", file=sys.stderr)
            code = 1
            break
        # Counted before it is removed: sizes are gone after.
        found[each.reason] += 1
        files += len(each.paths)
        size += sum(map(contents.documents.size, each.paths))
        if args.dry_run:
            for path in each.paths:
                print(printable(path))
        else:
            remove_waste(args.output, each)
    if not (args.dry_run or code) and found:
        try:
            contents.documents.compact()
        except OSError as error:  # it needs room for a copy
            print(f"{args.output}: cannot be compacted: {error.strerror or error}", file=sys.stderr)
            code = 1
    for reason, count in found.items():
        print(f"{count:>8,} {reason}")
    verb = "would remove" if args.dry_run else "removed"
    print(f"{verb} {files:,} files, {_format_size(size)}")
    return code


def _complain_of_damage(contents: Contents) -> bool:
    """Return whether the database is damaged: nothing is removed then for want of a record that cannot be read."""
    from pytest_agentbench.store.output_folder import DATABASE

    damage = contents.documents.find_damage()
    if damage is not None:
        advice = f"run `agentbench store repair --output {contents.output}` first"
        print(f"{contents.output / DATABASE}: is damaged ({printable(damage)}): {advice}", file=sys.stderr)
    return damage is not None


def _format_size(size: int) -> str:
    if size >= 1e5:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:,.1f} kB"


VERIFY_DESCRIPTION = """Read every run, verdict, judge's reply, vote and archived workspace; compare fingerprints with
their inputs, and files with their paths. Print a line for each problem; exit status 1 if there is one."""


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: `--output` is all it takes."""


def run_verify(args: argparse.Namespace) -> int:
    """Print each problem as it is found, then a summary."""
    from pytest_agentbench.store.contents import Contents
    from pytest_agentbench.store.maintenance import Verification

    verification, problems = Verification(Contents(args.output)), 0
    for problem in verification.problems():
        print(printable(problem))
        problems += 1
    looked_at = [f"{count:,} {kind}" for kind, count in verification.counts.items() if count]
    print(f"{', '.join(looked_at) or 'nothing stored'}: {count_text(problems, 'problem')}")
    return int(bool(problems))


SHOW_DESCRIPTION = """Print the stored runs of a case with their status and answer, and each verdict with its
reasons. Without CASE, the ids of all cases."""


def add_show_options(parser: argparse.ArgumentParser) -> None:
    """Add the options other than `--output`."""
    parser.add_argument("case", metavar="CASE", nargs="?", help="the id of a case, or the folder that is named by it")
    parser.add_argument("--json", action="store_true", help="print the documents whole, a JSON object each run")


def run_show(args: argparse.Namespace) -> int:
    """Print a run a paragraph, its verdicts below it."""
    from pytest_agentbench.bounded.folders import slug
    from pytest_agentbench.store.contents import Contents

    contents = Contents(args.output)
    if args.case is None:
        for name in sorted({folder.parts[-1] for folder in contents.runs()}):
            print(printable(name))
        return 0
    named = {args.case, slug(args.case)}
    count = 0
    for line in _write_lines(contents, _complain, lambda folder: folder.parts[-1] in named):
        count += 1
        if args.json:
            print(line, end="")
        else:
            print(*_describe_run(json.loads(line)), sep="\n")
    if not count:
        raise ConfigError(f"{args.output}: found no run of a case {args.case!r}; `agentbench store show` names all")
    return 0


def _describe_run(stored: dict[str, Any]) -> Iterator[str]:
    run = stored["run"]
    model = run["model"]["model_id"]
    yield printable(f"{run['case_id']}  {model}  repetition {run['repetition']}: {run['status']}, {run['started_at']}")
    yield f"  {printable(stored['artifact'])}"
    answers = [event["content"] for event in run["trace"] if event["type"] == "final_output"]
    for text in (*answers[-1:], run["error"] and run["error"]["message"]):
        if text is not None:
            yield "  > " + printable(shorten_text(str(text), 300))
    for each in stored["evaluations"]:
        verdict = each["evaluation"]
        score = "" if verdict["final_score"] is None else f", score {verdict['final_score']:g}"
        yield printable(f"  {verdict['evaluation_profile_id'] or 'verdict'}: {verdict['outcome']}{score}")
        yield from (f"    {printable(shorten_text(reason, 300))}" for reason in verdict["reasons"])


REPAIR_DESCRIPTION = """Make a new database of the readable documents of a damaged one: a damaged page costs the
documents on it. Lost ones are named; the next session makes them again. The damaged database is
kept as store.sqlite.damaged. Exit status 1 if a document is lost."""


def add_repair_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: `--output` is all it takes."""


def run_repair(args: argparse.Namespace) -> int:
    """Print a line for each lost document, then how many are saved."""
    from pytest_agentbench.store.maintenance import is_session_running
    from pytest_agentbench.store.output_folder import DATABASE, refuse_links
    from pytest_agentbench.store.repair import repair

    refuse_links(args.output)
    if is_session_running(args.output):
        print(f"{args.output}: a session is making runs there; repair when it has ended", file=sys.stderr)
        return 1
    found = repair(args.output)
    if found is None:
        print(f"{args.output / DATABASE}: is not damaged")
        return 0
    for path in found.lost:
        print(printable(f"lost {path}"))
    if found.missing:
        print(f"lost the last {found.missing:,} pages of the file: documents may have been there that nothing names")
    print(f"saved {found.saved:,} documents, lost {len(found.lost):,}; the damaged database is {found.damaged}")
    return int(bool(found.lost or found.missing))


EXPORT_DESCRIPTION = """Print one JSON object a line: {"artifact": path, "run": the run, "evaluations": [{"path": path,
"evaluation": the verdict}, ...]}, one verdict for each evaluation profile that judged the run. Runs and verdicts that
newer ones have replaced are left out, unless a session has reused them since. Unreadable documents are named on stderr
and make the exit status 1. With --files, write every document to its place in the documented layout instead."""


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Add the options other than `--output`."""
    parser.add_argument("-o", "--to", type=Path, metavar="FILE.jsonl", help="write to this file instead of stdout")
    parser.add_argument(
        "--files",
        nargs="?",
        type=Path,
        const=True,
        metavar="DIR",
        help="make the files runs/... and evaluations/... below DIR (default: the output folder)",
    )


def run_export(args: argparse.Namespace) -> int:
    """Write a line for each run as it goes."""
    from pytest_agentbench.store.contents import Contents
    from pytest_agentbench.store.layout import lay_out

    contents, problems = Contents(args.output), list[Exception]()

    def complain(problem: Exception) -> None:
        problems.append(problem)
        _complain(problem)

    if args.files is not None:
        target = args.output if args.files is True else args.files
        try:
            print(f"wrote {lay_out(contents.documents, str(target)):,} files below {target}")
        except OSError as error:
            raise InfrastructureError(f"{target}: cannot be written: {error.strerror or error}") from error
        return int(bool(contents.documents.is_damaged))
    with _open_target(args.to) as file:
        # Line by line: a store may be larger than memory.
        for line in _write_lines(contents, complain):
            file.write(line)
    return int(bool(problems))


def _complain(problem: Exception) -> None:
    print(printable(str(problem)), file=sys.stderr)


def _write_lines(
    contents: Contents, complain: Callable[[Exception], None], wanted: Callable[[Folder], bool] = lambda folder: True
) -> Iterator[str]:
    from pytest_agentbench.store.documents import load_run

    for folder in filter(wanted, contents.runs()):
        evaluated = [contents.folder(path) for path in contents.evaluation_folders(folder)]
        for name, (kind, _, _) in folder.files.items():
            if kind != "run" or not contents.is_in_use(folder, name):
                continue
            path = f"{folder.path}/{name}"
            try:
                artifact = load_run(contents.output, path)
            except InfrastructureError as error:
                complain(error)
                continue
            verdicts = ",".join(_read_verdicts(contents, evaluated, artifact, complain))
            # Not through json.dumps: pydantic writes a run at once, without a dictionary in between.
            yield f'{{"artifact":{json.dumps(path)},"run":{artifact.model_dump_json()},"evaluations":[{verdicts}]}}\n'


def _read_verdicts(
    contents: Contents, folders: list[Folder], artifact: RunArtifact, complain: Callable[[Exception], None]
) -> Iterator[str]:
    """Yield those in the folders that are on this run, as JSON."""
    from pytest_agentbench.store.contents import is_verdict_on
    from pytest_agentbench.store.documents import load_evaluation

    for folder in folders:
        for name in folder.repetitions.get(artifact.repetition, ()):
            if folder.files[name].kind != "result" or not contents.is_in_use(folder, name):
                continue
            path = f"{folder.path}/{name}"
            try:
                evaluation = load_evaluation(contents.output, path)
            except InfrastructureError as error:
                complain(error)
                continue
            if is_verdict_on(evaluation, artifact):
                yield f'{{"path":{json.dumps(path)},"evaluation":{evaluation.model_dump_json()}}}'


@contextmanager
def _open_target(path: Path | None) -> Iterator[IO[str]]:
    """Open where lines go: stdout, or a file that is whole or not there. Raises InfrastructureError."""
    from io import TextIOWrapper

    from pytest_agentbench.bounded.writing import replace_file

    if path is None:
        # Answers are in any language; a console's own encoding (cp1252) would fail at the first of them.
        if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
            reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    try:
        with replace_file(path) as file:
            text = TextIOWrapper(file, encoding="utf-8")
            yield text
            text.detach()  # which would close the file before it is in its place
    except OSError as error:
        raise InfrastructureError(f"-o {path}: cannot be written: {error.strerror or error}") from error


_COMMANDS = {
    "show": ("print the runs of a case and the verdicts on them", SHOW_DESCRIPTION, add_show_options, run_show),
    "why": ("show the differences for which two runs are stored separately", WHY_DESCRIPTION, add_why_options, run_why),
    "prune": ("remove documents that no session needs any more", PRUNE_DESCRIPTION, add_prune_options, run_prune),
    "verify": (
        "check that all stored documents can be read and match their fingerprints",
        VERIFY_DESCRIPTION,
        add_verify_options,
        run_verify,
    ),
    "repair": (
        "make a new database of the readable documents of a damaged one",
        REPAIR_DESCRIPTION,
        add_repair_options,
        run_repair,
    ),
    "export": (
        "print all runs with their verdicts, a JSON object each",
        EXPORT_DESCRIPTION,
        add_export_options,
        run_export,
    ),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    parser = subparsers.add_parser("store", help="look into the store of runs", description=__doc__)
    commands = parser.add_subparsers(dest="store_command", metavar="COMMAND", required=True)
    for name, (summary, description, add_options, _) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=description)
        add_options(command)
        command.add_argument(
            "--output", type=Path, default=Path("outputs"), metavar="DIR", help="the output folder (default: outputs)"
        )


def run(args: argparse.Namespace) -> int:
    """Run one of them: 0 all is well, 1 something is wrong with the store."""
    return _COMMANDS[args.store_command][3](args)
