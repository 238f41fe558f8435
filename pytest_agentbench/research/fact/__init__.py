"""FACT: whether the citations of a report hold. extract, deduplicate, scrape, validate, stat."""
