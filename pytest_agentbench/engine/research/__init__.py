"""Research reports as items: what of a report is scored, on which run, with which pages, as which metrics."""
