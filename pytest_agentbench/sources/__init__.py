"""Sources of cases: files to Case records, and which of them a suite selects.

Others use: dataset, discovery, items, json_files, predictions, quality, rows, test_yaml
"""
