"""Check `openclaw_workspace_file_present`: the agent wrote a file with the required text."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from pytest_agentbench.checks.base import (
    CheckContext,
    CheckSpec,
    Unmet,
    Verdict,
    excerpt,
    normalized,
    read_text,
    verdict,
)
from pytest_agentbench.packs.openclaw.config import leads_inside
from pytest_agentbench.records.base import Text

# A separate module: case files with this check import it, also in sessions without a run of OpenClaw.


def _require_inside(path: str) -> str:
    if not leads_inside(path):
        raise ValueError(f"found {path!r}, expected a path inside the workspace")
    return path


class OpenclawWorkspaceFilePresent(CheckSpec):
    """The agent created or changed the file at exactly `relative_path`, and its text meets `contains*`."""

    beyond_answers = True

    kind: Literal["openclaw_workspace_file_present"]
    relative_path: Annotated[Text, AfterValidator(_require_inside)]
    """The file's path in the workspace."""
    contains: Text | None = None
    """Text that the file must contain."""
    contains_all: tuple[Text, ...] = ()
    """Texts that the file must contain, all of them."""
    contains_any: tuple[Text, ...] = ()
    """Texts of which the file must contain at least one."""

    @model_validator(mode="after")
    def _one_style(self) -> Self:
        if self.contains is not None and (self.contains_all or self.contains_any):
            raise ValueError("Use either legacy 'contains' or the normalized 'contains_all' / 'contains_any', not both")
        return self

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Return the file."""
        return (self.relative_path,)

    def check(self, context: CheckContext) -> Verdict:
        """Pass if the workspace diff of an OpenClaw run has the file: created, changed or renamed to that path."""
        # The diff counts, not the files: files that existed before the run are not the agent's work.
        path, changed = self.relative_path, context.artifact.changed_files
        if context.artifact.runner_type != "openclaw":
            raise Unmet(f"the run's runner is {context.artifact.runner_type}, this check needs openclaw")
        if path not in changed:
            message = f"the agent did not create or change {path}"
            if context.artifact.changes_untold is not None:
                message += f"; {context.artifact.changes_untold}"
            return verdict(False, message, path, f"changed: {', '.join(changed) or 'nothing'}")
        if self.contains is None and not self.contains_all and not self.contains_any:
            return verdict(True, f"the agent created or changed {path}", path, path)
        text, name = read_text(context, path)
        lacking = self._lacking(text)
        message = f"{name} lacks {lacking}" if lacking else f"{name} contains the expected texts"
        return verdict(not lacking, message, lacking or None, excerpt(text))

    def _lacking(self, text: str) -> str:
        # `contains` is the older form, and exact; the others ignore case and accents (seed 002).
        if self.contains is not None:
            if self.contains in text:
                return ""
            return repr(self.contains)
        plain = normalized(text)
        lacking = [repr(needle) for needle in self.contains_all if normalized(needle) not in plain]
        if self.contains_any and not any(normalized(needle) in plain for needle in self.contains_any):
            lacking.append("any of " + ", ".join(map(repr, self.contains_any)))
        return ", ".join(lacking)
