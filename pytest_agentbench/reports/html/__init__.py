"""The report as a page for people: one file that asks nothing of elsewhere, or live from `agentbench watch`."""

from pytest_agentbench.reports.html.details import run_detail
from pytest_agentbench.reports.html.page import live_page, page_data, page_text, write_page
from pytest_agentbench.reports.html.reproducing import deciding_options

__all__ = ["deciding_options", "live_page", "page_data", "page_text", "run_detail", "write_page"]
