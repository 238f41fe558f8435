"""Reports in CI: a Markdown comment, GitHub's job summary and annotations, all made from the report alone.

Names, messages and paths come from agents and cases. Here they become text and nothing else: no markup, no link, no
mention, no command to the runner.
"""
