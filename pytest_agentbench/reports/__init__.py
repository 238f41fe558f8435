"""Reports: what a session found, for people (terminal, assertion reports, live progress) and for programs
(report.json, user properties, JUnit, the gate).

Others use: assertion, breakdown, ci.document, ci.github, ci.jobs, comparison.campaigns, comparison.comparing,
comparison.results, comparison.wording, export, gate, html.details, html.page, human_agreement, journal,
judge_agreement, outputs, progress, reading, report, rows, sections, telemetry.environment, telemetry.sending,
terminal, text
"""
