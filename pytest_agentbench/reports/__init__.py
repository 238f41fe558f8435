"""Reports of a session for people (terminal, assertion reports, live progress) and for programs (report.json, user
properties, JUnit, the gate).

Others use: assertion, charts, ci.document, ci.sections, comparison.campaigns, comparison.columns,
comparison.comparing, comparison.results, comparison.wording, datasets, ends, export, failure_lists, gate, history,
history_file, html.details, html.page, human_agreement, journal, json_lines, judges, kept_rows, named_files, progress,
reading, recorded_sessions, report, reruns, rows, run_names, sections, stored_runs, table, telemetry.sending,
telemetry.spans, terminal, texts
"""
