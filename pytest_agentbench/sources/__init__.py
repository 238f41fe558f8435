"""Sources of cases: files to Case records, and which of them a suite selects.

Others use: case_source, choices, dataset, discovery, items, names, predictions, rows, test_yaml, triggers
"""
