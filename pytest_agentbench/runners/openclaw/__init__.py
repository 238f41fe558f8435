"""The `openclaw` runner: a real agent program in a container, asked turn by turn (seed 002, spec/openclaw.md)."""
