"""Checks of what the run left behind: files, and the output artifacts that it recorded."""

from __future__ import annotations

import unicodedata

from pytest_agentbench.checks.base import CheckContext, Unmet, Verdict, excerpt, verdict
from pytest_agentbench.checks.places import find, missing, read_text
from pytest_agentbench.records import (
    FileContains,
    FileExists,
    OpenclawWorkspaceFilePresent,
    OutputArtifactPresent,
    PathExists,
)


def file_exists(spec: FileExists, context: CheckContext) -> Verdict:
    """A regular file lies at the path; a link is none."""
    place = find(context, spec.path)
    if place is None:
        raise Unmet(missing(context, spec.path))
    kind = "regular file" if place.kind == "file" else place.kind
    return verdict(place.kind == "file", f"{spec.path} in {place.name} is a {kind}", "a regular file", f"a {kind}")


def path_exists(spec: PathExists, context: CheckContext) -> Verdict:
    """Anything lies at the path."""
    place = find(context, spec.path)
    if place is None:
        raise Unmet(missing(context, spec.path))
    return verdict(True, f"{spec.path} exists in {place.name}", "anything", f"a {place.kind}")


def file_contains(spec: FileContains, context: CheckContext) -> Verdict:
    """The file's text holds `text`, case-sensitively."""
    text, name = read_text(context, spec.path)
    found = spec.text in text
    return verdict(found, f"{name} {'holds' if found else 'does not hold'} the text", spec.text, excerpt(text))


def output_artifact_present(spec: OutputArtifactPresent, context: CheckContext) -> Verdict:
    """An output artifact agrees with every field that is given."""
    wanted = spec.model_dump(exclude={"kind"}, exclude_none=True)
    artifacts = context.artifact.output_artifacts
    found = any(all(getattr(each, name) == value for name, value in wanted.items()) for each in artifacts)
    listed = ", ".join(f"{each.artifact_id} ({each.artifact_type}, {each.uri})" for each in artifacts) or "none"
    message = f"{'an' if found else 'no'} output artifact of {len(artifacts)} matches"
    return verdict(found, message, ", ".join(f"{name}={value}" for name, value in wanted.items()), listed)


def openclaw_workspace_file_present(spec: OpenclawWorkspaceFilePresent, context: CheckContext) -> Verdict:
    """The workspace diff of an OpenClaw run has the file: it was created, changed or renamed to that path."""
    path = spec.relative_path
    if context.artifact.runner_type != "openclaw":
        raise Unmet(f"the run's runner is {context.artifact.runner_type}, this check needs openclaw")
    changed = context.artifact.changed_files
    if path not in changed:
        listed, untold = ", ".join(changed) or "nothing", context.artifact.changes_untold
        message = f"the agent did not create or change {path}" + (f"; {untold}" if untold is not None else "")
        return verdict(False, message, path, f"changed: {listed}")
    if spec.contains is None and not spec.contains_all and not spec.contains_any:
        return verdict(True, f"the agent created or changed {path}", path, path)
    text, name = read_text(context, path)
    lacking = _lacking(spec, text)
    message = f"{name} lacks {lacking}" if lacking else f"{name} holds what it should"
    return verdict(not lacking, message, lacking or None, excerpt(text))


def normalized(text: str) -> str:
    """NFKD of the case-folded text without combining characters; white space is kept."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in decomposed if not unicodedata.combining(each))


def _lacking(spec: OpenclawWorkspaceFilePresent, text: str) -> str:
    if spec.contains is not None:
        return "" if spec.contains in text else repr(spec.contains)
    plain = normalized(text)
    lacking = [repr(needle) for needle in spec.contains_all if normalized(needle) not in plain]
    if spec.contains_any and not any(normalized(needle) in plain for needle in spec.contains_any):
        lacking.append("any of " + ", ".join(map(repr, spec.contains_any)))
    return ", ".join(lacking)
