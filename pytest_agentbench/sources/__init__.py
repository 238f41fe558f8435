"""Sources of cases: files to Case records, and which of them a suite selects."""
