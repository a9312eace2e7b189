"""`python -m fnftg`."""

from fnftg.cli import start

start()
