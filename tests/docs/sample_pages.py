"""The sample plugin's files, as docs/plugin.md quotes them; `python tests/docs/sample_pages.py` copies them anew."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugin.md"
SAMPLE = ROOT / "tests" / "sample_plugin"
_QUOTED = re.compile(
    r"(<!-- file: (agentbench_sample/[^ ]+|pyproject\.toml) -->\n```\w+\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL
)


def quoted_files(page: str) -> list[str]:
    """Return the files of the sample that a page quotes, by their paths there."""
    return [match[2] for match in _QUOTED.finditer(page)]


def with_files(page: str) -> str:
    """Return the page with each file that it quotes as it is."""
    return _QUOTED.sub(lambda match: match[1] + (SAMPLE / match[2]).read_text(encoding="utf-8") + match[4], page)


if __name__ == "__main__":
    PAGE.write_text(with_files(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
