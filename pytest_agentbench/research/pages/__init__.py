"""The pages that reports cite: each fetched once, politely, read apart from all else, and kept."""

from pytest_agentbench.research.pages.pages import PAGES, Pages
from pytest_agentbench.research.pages.settings import PageSettings

__all__ = ["PAGES", "PageSettings", "Pages"]
