"""Write the tables of README.md and docs/ from docs/results.json and docs/trials.csv: make results.

docs/results.json has every published figure with its command, commit, protocol, seeds and machine. A table is a file in
docs/tables/, in Markdown, with {measurement|value} in place of figures; {measurement|value|.1f} sets the format. A page
shows a table between these two lines, which stay where they are:

    <!-- table: NAME -->
    <!-- end of table -->

The table `trials-NAME` has the rows of docs/trials.csv with NAME in their first column.

Links in a table start at the root, as README.md needs them: docs/x.md#y, tests/test_x.py. On pages in docs/ the first
becomes x.md#y, and the second the name of the test, because the site has no tests.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
FIELD = re.compile(r"\{([^|{}]+)\|([^|{}]+)(?:\|([^|{}]*))?\}")
LINK = re.compile(r"\[([^\]]*)\]\((docs|tests)/([^)]+)\)")

Value = float | int | str
Values = dict[str, Value]


def read_measurements() -> dict[str, Values]:
    """The values of each measurement, by its id."""
    found = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    return {one["id"]: one["values"] for one in found["measurements"]}


def shown(value: Value, form: str | None = None) -> str:
    """A figure as pages show it: three digits behind the point, or thousands set apart."""
    if isinstance(value, str):
        return value
    return format(value, form or (",d" if isinstance(value, int) else ".3f"))


def filled(template: str, measurements: dict[str, Values]) -> str:
    def figure(field: re.Match[str]) -> str:
        try:
            return shown(measurements[field[1]][field[2]], field[3])
        except KeyError as error:
            raise SystemExit(f"docs/results.json has no {error} for {field[0]} of docs/tables/.") from None

    return FIELD.sub(figure, template)


def trials(name: str) -> str:
    with (DOCS / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    chosen = [row[1:] for row in rows[1:] if row[0] == name]
    if not chosen:
        raise SystemExit(f"docs/trials.csv has no row with {name} in its first column.")
    lines = [rows[0][1:], ["---"] * (len(rows[0]) - 1), *chosen]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def table(name: str, measurements: dict[str, Values]) -> str:
    """A table in Markdown, with a line's end behind its last row."""
    if name.startswith("trials-"):
        return trials(name.removeprefix("trials-"))
    return filled((DOCS / "tables" / f"{name}.md").read_text(encoding="utf-8"), measurements)


def linked_from_docs(text: str) -> str:
    """A table for a page in docs/: links without docs/, names of tests in place of links to them."""

    def moved(link: re.Match[str]) -> str:
        shown_as, folder, target = link.groups()
        return f"[{shown_as}]({target})" if folder == "docs" else f"{shown_as} `tests/{target}`"

    return LINK.sub(moved, text)


def renewed(text: str, measurements: dict[str, Values], in_docs: bool) -> str:
    """A page with its tables as they should be."""

    def shown_table(place: re.Match[str]) -> str:
        made = table(place[2], measurements)
        return f"{place[1]}{linked_from_docs(made) if in_docs else made}{place[4]}"

    return PLACE.sub(shown_table, text)


def changed() -> Iterator[tuple[Path, str]]:
    """The pages whose tables differ from the results, as they should be."""
    measurements = read_measurements()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text, measurements, in_docs=page.parent == DOCS)) != text:
            yield page, new


def main() -> None:
    for page, text in changed():
        page.write_text(text, encoding="utf-8")
        print(f"{page.name} has new tables.", file=sys.stderr)


if __name__ == "__main__":
    main()
