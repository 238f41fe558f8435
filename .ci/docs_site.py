"""Hooks of mkdocs that turn the pages of docs/, written for a repository's browser, into pages of a site.

They add the pages next to docs/ and turn the links between the two. Comments that name a block's file become the
block's title.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages next to docs/, with their names in the site."""

_FILE = re.compile(r"^<!-- file: ([^>\n]+?) -->\n(?:\n)?^```(\w+)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^<!-- (?:ci|folder|serve|needs)\b[^\n]*-->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages next to docs/."""
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
    """Turn links to pages next to docs/ into links to the site's pages."""
    for name, page in OUTSIDE.items():
        text = text.replace(f"]({before}{name}", f"]({before.removeprefix('../')}{page}")
    return text
