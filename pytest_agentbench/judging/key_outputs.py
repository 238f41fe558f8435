"""The text of those files a run has left that count, for a judge to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pytest_agentbench.models import Block, clipped
from pytest_agentbench.records import Case, OutputArtifact, RunArtifact
from pytest_agentbench.store import OUTPUT_TYPE

# Characters shown at most; the middle of what is longer is left out.
MAX_EXPECTED = 40_000
MAX_OTHER = 10_000
MAX_OTHERS = 30_000

Texts = Mapping[str, str | None]
"""Paths of kept files in the workspace -> what they hold; None where that is no text."""

NO_TEXTS: Texts = MappingProxyType({})


def key_outputs(case: Case, artifact: RunArtifact) -> list[OutputArtifact]:
    """The kept files whose text a judge is to see: the one that the case expects, and all that an OpenClaw agent made
    or changed, as files are what such an agent answers with.
    """
    wanted = artifact.changed_files if artifact.runner_type == "openclaw" else (case.expected_artifact,)
    kept = (each for each in artifact.output_artifacts if each.artifact_type == OUTPUT_TYPE)
    return [each for each in kept if each.artifact_id in wanted]


def key_texts(case: Case, artifact: RunArtifact, texts: Texts) -> Iterator[str | Block]:
    """That of each file in a block, and whether the expected one is missing. The paths are the agent's words too."""
    expected = case.expected_artifact
    about_expected = _untold_of(expected, artifact, texts) if expected is not None else None
    if not texts and about_expected is None:
        return
    yield "\n## Text of files the agent left behind"
    if about_expected is not None:
        yield about_expected
    room = MAX_OTHERS
    for path, text in texts.items():
        is_expected = path == expected
        shown = "[not text]" if text is None else clipped(text, MAX_EXPECTED if is_expected else min(room, MAX_OTHER))
        if not is_expected:
            room -= len(shown)
            if room <= 0:
                yield "[the text of further files is left out here]"
                return
        yield Block("the expected file" if is_expected else "another file", f"path: {path}\n\n{shown}")


def _untold_of(expected: str, artifact: RunArtifact, texts: Texts) -> str | None:
    """Why the text of the file that the case expects is not among the others; None where it is."""
    if artifact.changes is None or expected in texts:
        return None
    if expected not in artifact.changed_files:
        return "The agent neither created nor changed the file that the case expects."
    return "The text of the file that the case expects cannot be shown: it was too large to be kept, or is lost."
