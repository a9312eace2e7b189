"""Run the command line with `python -m fnftg`."""

from fnftg.cli import start

start()
