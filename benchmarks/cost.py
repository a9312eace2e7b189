"""Accuracy against minutes: a picture of finished runs, each a point; lines of other people's figures beside them.
Left as they are; right, as in the paper's figure of its encoders, relative to the most accurate run at (1, 1).

    python benchmarks/cost.py short frugal frugal-wn18rr --features 3 -o cost.svg --line "BERT-base, paper=0.732"

The minutes are those of training with its validations, from each run's metrics.json, plus those of the text features.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fnftg.console import log, print_table
from fnftg.errors import FnftgError
from fnftg.files import new_file
from fnftg.paper.paper_plots import BLUE, GREY, STYLE


def point(run: Path, features: float) -> tuple[str, float, float]:
    """The run's name, its minutes and its MRR on test."""
    try:
        metrics = json.loads((run / "checkpoint" / "metrics.json").read_text(encoding="utf-8"))
        return run.name, features + metrics["training_seconds"] / 60, float(metrics["test"]["mrr"])
    except (OSError, ValueError, KeyError) as error:
        raise FnftgError(f"{run} is not the folder of a run that was ranked on test: train it to its end.") from error


def draw(points: list[tuple[str, float, float]], lines: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    best = max(points, key=lambda one: one[2])
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, 2, figsize=(11, 3.9), layout="constrained")
        for axes, (time, accuracy) in zip(panels, ((1.0, 1.0), best[1:]), strict=True):
            axes.plot([x / time for _, x, _ in points], [y / accuracy for _, _, y in points], "o", color=BLUE)
            for name, x, y in points:
                axes.annotate(name, (x / time, y / accuracy), (6, 5), textcoords="offset points")
            axes.margins(y=0.12)
            end = 1.3 * max(x for _, x, _ in points) / time
            axes.set_xlim(0, end)
            for name, height in lines.items():
                axes.axhline(height / accuracy, color=GREY, linestyle="--", linewidth=1)
                axes.annotate(
                    name, (end, height / accuracy), (-4, 3), textcoords="offset points", color=GREY, ha="right"
                )
        panels[0].set(xlabel="minutes, text features included", ylabel="MRR on test")
        panels[1].set(xlabel=f"time, relative to {best[0]}", ylabel="MRR, relative")
        with new_file(path, force=True) as partial:
            figure.savefig(partial, format=path.suffix.lstrip("."), dpi=200, metadata=metadata(path))
        pyplot.close(figure)


def metadata(path: Path) -> Any:
    """No date, so that the same picture is the same file."""
    return {"Date": None} if path.suffix == ".svg" else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("--features", type=float, default=0.0, help="minutes that the text features took")
    parser.add_argument("--line", action="append", default=[], metavar="NAME=MRR", help="a figure to compare with")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="an .svg or .png file")
    chosen = parser.parse_args()
    try:
        points = sorted((point(run, chosen.features) for run in chosen.runs), key=lambda one: one[1])
        lines = {name: float(value) for name, value in (line.rsplit("=", 1) for line in chosen.line)}
    except (FnftgError, ValueError) as error:
        sys.exit(f"fnftg: {error}")
    draw(points, lines, chosen.output)
    print_table(
        "accuracy against minutes", ["run", "minutes", "MRR"], [(n, f"{x:.1f}", f"{y:.3f}") for n, x, y in points]
    )
    log(f"The picture is {chosen.output}.")


if __name__ == "__main__":
    main()
