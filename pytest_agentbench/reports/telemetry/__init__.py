"""OpenTelemetry: runs, their model calls and tool calls as spans, and verdicts as events, by the GenAI conventions."""
