"""Write docs/commands.md, the reference of the command line, from the commands and their help: make results."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fnftg.cli import COMMANDS, Command, main
from fnftg.training.recipes import recipes

PAGE = Path(__file__).parent / "commands.md"
BEGINNING = """\
# Commands

`fnftg --help` lists the commands, and the option `--help` of a command prints the same help as this page.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | bad input, or a failure of the system such as a full disk; one sentence on standard error says what to do |
| 2 | wrong usage, such as an unknown command or a missing argument |
| 130, 143 | stopped by Ctrl-C or `SIGTERM`; no incomplete output is left |

Results go to standard output, notices and progress to standard error. Wherever a command takes a graph, you can give a
store, the name of a dataset (`fnftg data list`) or a source that `fnftg import` reads.

| variable | meaning |
| --- | --- |
| `FNFTG_HOME` | folder of datasets and caches ([what is in it](formats.md#data-home)) |
| `FNFTG_TOKEN` | token of `fnftg serve`, in place of `--token` |
| `OMP_NUM_THREADS`, `NUMBA_NUM_THREADS` | number of threads of a process |
| `HF_HOME`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` | read by `huggingface_hub`, which downloads pretrained encoders |
"""


class Parser(BaseException):
    """Carries the parser of a command out of its function."""

    def __init__(self, parser: argparse.ArgumentParser):
        super().__init__()
        self.parser = parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser that a command makes when its help is asked for."""

    def print_help(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise Parser(parser)

    before = argparse.ArgumentParser.print_help
    argparse.ArgumentParser.print_help = print_help  # type: ignore[method-assign, assignment]
    try:
        main([*name.split(), "--help"])
    except Parser as found:
        return found.parser
    finally:
        argparse.ArgumentParser.print_help = before  # type: ignore[method-assign]
    raise SystemExit(f"fnftg {name} --help printed no help.")


def shown_arguments(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """The arguments of a group without --help and those that the help hides."""
    return [
        action
        for action in group._group_actions
        if action.dest != "help" and argparse.SUPPRESS not in (action.help, action.default)
    ]


def written(action: argparse.Action) -> str:
    """An argument as a user writes it: `-o STORE`, `--force`, `SOURCE`."""
    names = ", ".join(name for name in action.option_strings if not name.endswith("+"))
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.rpartition(".")[2].upper())
    if not names:
        return value
    return names if action.nargs == 0 else f"{names} {value}"


def meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an argument, with its default if the help does not say it."""
    text = " ".join(parser._get_formatter()._expand_help(action).split())
    text = text.replace(f"({', '.join(recipes())})", "([list](#fnftg-recipes))")
    is_field = "." in action.dest  # of a config
    if is_field or (action.default and "default" not in text):
        text = f"{text.rstrip('.')} (default: {shown_default(action.default)})"
    return text.replace("|", "\\|")


def shown_default(value: object) -> str:
    """A default as a user would write it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One table for the arguments and the general options, and one for each further group."""
    general = ("positional arguments", "options")
    groups = {"": [one for group in parser._action_groups if group.title in general for one in shown_arguments(group)]}
    for group in parser._action_groups:
        if group.title not in general:
            title = str(group.title)
            groups[f"**{title[0].upper()}{title[1:]}.** {group.description or ''}".rstrip()] = shown_arguments(group)
    for title, actions in groups.items():
        if actions:
            yield from [f"{title}\n"] if title else []
            yield "| option | meaning |\n| --- | --- |"
            yield from (f"| `{written(action)}` | {meaning(action, parser)} |" for action in actions)
            yield ""


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    """The command with what it cannot do without."""
    every = [action for group in parser._action_groups for action in shown_arguments(group)]
    optional = [action for action in every if action.option_strings and not action.required]
    words = []
    for action in (action for action in every if action not in optional):
        word = re.sub(r"^(-\w), --[\w-]+", r"\1", written(action))
        words.append(f"[{word}]" if action.nargs == "?" else word)
    return " ".join(["fnftg", name, *words, *(["[OPTIONS]"] if optional else [])])


def closing(epilog: str) -> Iterator[str]:
    """What stands below the options: examples as shell code, the rest as text."""
    for part in epilog.split("\n\n"):
        first, _, lines = part.partition("\n")
        if first != "examples:":
            yield f"```text\n{part}\n```\n"
            continue
        code = "\n".join(re.sub(r"\s+\((.*)\)$", r"  # \1", line.removeprefix("  ")) for line in lines.splitlines())
        yield f"```sh\n{code}\n```\n"


def section(name: str, command: Command) -> Iterator[str]:
    parser = parser_of(name)
    yield f"### fnftg {name}\n"
    yield f"{command.summary}\n"
    yield f"```text\n{usage(name, parser)}\n```\n"
    if further := str(parser.description).partition(command.summary)[2].strip():
        yield f"{further}\n"
    yield from tables(parser)
    if name == "recipes":
        yield "| recipe | what it trains |\n| --- | --- |"
        yield from (f"| `{recipe}` | {summary} |" for recipe, summary in recipes().items())
        yield ""
    yield from closing(str(parser.epilog))


def page() -> str:
    """The whole page, in the order of `fnftg --help`."""
    parts = [BEGINNING]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        chosen = {name: command for name, command in COMMANDS.items() if command.group == group}
        parts += [f"## {group}\n", "| command | what it does |\n| --- | --- |"]
        parts += [f"| [`{name}`](#fnftg-{name.replace(' ', '-')}) | {one.summary} |" for name, one in chosen.items()]
        parts += ["", *(line for name, command in chosen.items() for line in section(name, command))]
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    text = page()
    if text != PAGE.read_text(encoding="utf-8"):
        PAGE.write_text(text, encoding="utf-8")
        print("commands.md has changed.", file=sys.stderr)
