"""`python -m autograde …` is the same as `autograde …`."""

from autograde.cli import app

app(prog_name="autograde")
