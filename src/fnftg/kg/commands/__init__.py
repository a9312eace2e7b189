"""The commands for graphs. They parse arguments and print tables or JSON."""
