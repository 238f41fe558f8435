"""Reports: what a session found, for people (terminal, assertion reports, live progress) and for programs
(report.json, user properties, JUnit, the gate)."""
