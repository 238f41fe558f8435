"""What CI shows of a report: a Markdown comment, GitHub's job summary and annotations, all made from the report alone.

Names, messages and paths come from agents and cases. Here they become text and nothing else: no markup, no link, no
mention, no command to the runner.
"""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.reports.ci.commands import Unheeded, on_github

if TYPE_CHECKING:
    from pytest_agentbench.reports.ci.document import MARKER, comparison_markdown, markdown
    from pytest_agentbench.reports.ci.github import job_summary, write_annotations
    from pytest_agentbench.reports.ci.places import Places

_HOMES = {
    "document": ("MARKER", "comparison_markdown", "markdown"),
    "github": ("job_summary", "write_annotations"),
    "places": ("Places",),
}
"""What workers, which make no report, do without."""
__getattr__ = lazy_exports(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "MARKER",
    "Places",
    "Unheeded",
    "comparison_markdown",
    "job_summary",
    "markdown",
    "on_github",
    "write_annotations",
]
