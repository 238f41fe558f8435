"""FACT: the citations of a report, and whether the pages that it cites say so."""
