"""Hooks of mkdocs: the pages of docs/ are written for a repository's browser; here they become those of a site.

The pages beside docs/ join it, links between the two are turned, and the name of a file that a block is written to,
which is a comment in the page, becomes the block's title.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages beside docs/, and what they are called in it."""

_FILE = re.compile(r"^<!-- file: ([^>\n]+?) -->\n(?:\n)?^```(\w+)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^<!-- (?:ci|serve|needs)\b[^\n]*-->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages beside docs/."""
    root = Path(config.config_file_path).parent
    for name, page in OUTSIDE.items():
        text = (root / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_links(text, "")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links and comments of one page."""
    up = "../" * page.file.src_uri.count("/")
    markdown = _links(markdown, f"{up}../")
    return _FILE.sub(r'```\2 title="\1"', _DIRECTIVE.sub("", markdown))


def _links(text: str, before: str) -> str:
    """Links to pages beside docs/ as links to pages in it."""
    for name, page in OUTSIDE.items():
        text = text.replace(f"]({before}{name}", f"]({before.removeprefix('../')}{page}")
    return text
