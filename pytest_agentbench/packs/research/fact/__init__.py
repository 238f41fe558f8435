"""FACT: the citations of a report, and whether the cited pages support them."""
