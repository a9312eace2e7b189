"""Make the pictures of the README and the pages: make pictures.

    python docs/drawings                                  the drawings alone; needs nothing but Python
    python docs/drawings demo-output/pages/animals-run    what the run predicts and the screenshots too

The drawings show docs/results.json and docs/screenshots/made-with.json, in which the last run's predictions are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from cost import cost
from model_drawings import attention, hidden, model
from overview import overview
from screenshots import find_chromium, renew
from svg import Drawing

DOCS = Path(__file__).parents[1]
SCREENSHOTS = DOCS / "screenshots"


def overview_of_last_run() -> Drawing:
    return overview(json.loads((SCREENSHOTS / "made-with.json").read_text(encoding="utf-8"))["prediction"])


def cost_of_results() -> Drawing:
    found = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    return cost({one["id"]: one["values"] for one in found["measurements"]})


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "picture.svg": overview_of_last_run,
    "pictures/model.svg": model,
    "pictures/attention.svg": attention,
    "pictures/hidden.svg": hidden,
    "pictures/cost.svg": cost_of_results,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a calibrated run of the default recipe")
    parser.add_argument("--browser", action="store_true", help="only check that there is a browser")
    parser.add_argument("-o", "--output", type=Path, default=DOCS, metavar="DIR", help="where the drawings go")
    chosen = parser.parse_args()
    if chosen.browser:
        find_chromium()
        return
    if chosen.run is not None:
        renew(chosen.run, SCREENSHOTS)
    for name, draw in DRAWINGS.items():
        path = chosen.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draw().save(path)
        print(f"{path} is drawn.", file=sys.stderr)


if __name__ == "__main__":
    main()
