"""Plots as PNG and SVG: accuracy against training time, and bar charts for the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fnftg.console import log
from fnftg.files import new_file
from fnftg.paper.experiments import TEST, Experiment
from fnftg.paper.result_tables import Line

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#767676"  # colour-blind safe (Okabe and Ito)
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "fnftg",  # reproducible output
    "svg.fonttype": "none",
}


def draw(experiment: Experiment, lines: Sequence[Line], folder: Path) -> list[Path]:
    """Draw the plot of the results so far; log a line if there is no result or no matplotlib."""
    done = [line for line in lines if line.seeds]
    if not done:
        log("No plot: there are no results yet.")
        return []
    try:
        import matplotlib
    except ImportError:
        log("No plot: install matplotlib with pip install 'fnftg[plots]'.")
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure = latency(pyplot, done) if experiment.own_texts else bars(pyplot, experiment, lines)
        written = []
        for ending in ("png", "svg"):
            with new_file(folder / f"{experiment.name}.{ending}", force=True) as path:
                metadata = {"Date": None} if ending == "svg" else None
                figure.savefig(path, format=ending, dpi=200, bbox_inches="tight", metadata=metadata)
            written.append(folder / f"{experiment.name}.{ending}")
        pyplot.close(figure)
    return written


def latency(pyplot: Any, lines: Sequence[Line]) -> Any:
    """Plot MRR against training time per dataset and encoder, both relative to the slowest encoder."""
    datasets = list(dict.fromkeys(line.dataset for line in lines))
    figure, panels = pyplot.subplots(
        len(datasets), 1, figsize=(6.4, 3.9 * len(datasets)), squeeze=False, layout="constrained"
    )
    for axes, dataset in zip(panels[:, 0], datasets, strict=True):
        own = sorted((line for line in lines if line.dataset == dataset), key=lambda line: line.seconds.mean or 0)
        slowest = own[-1]
        time, accuracy = slowest.seconds.mean or 1.0, slowest.values["mrr"].mean or 1.0
        x = [(line.seconds.mean or 0) / time for line in own]
        y = [(line.values["mrr"].mean or 0) / accuracy for line in own]
        spread = [(line.values["mrr"].std or 0) / accuracy for line in own]
        axes.plot(x, y, color=GREY, linewidth=1, zorder=1)
        for place, line in enumerate(own):
            mrr, seconds = line.values["mrr"].mean or 0, line.seconds.mean or 0
            axes.errorbar(
                x[place],
                y[place],
                yerr=spread[place] or None,
                color=COLOURS[place % len(COLOURS)],
                marker="osD^vPX"[place % 7],
                linestyle="none",
                markersize=8,
                capsize=3,
                label=f"{line.encoder}: MRR {mrr:.3f}, {duration(seconds)}",
            )
        axes.legend(frameon=False, fontsize=9, loc="best")
        low, high = min(y), max(y)
        pad = max(0.3 * (high - low), 0.12)
        axes.set_ylim(low - 1.5 * pad, high + pad)
        axes.set_xlim(0, 1.06)
        axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(dataset)
        axes.set_ylabel("MRR on test, relative")
    panels[-1, 0].set_xlabel("time to encode the texts and train, relative to the slowest encoder")
    return figure


def duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def bars(pyplot: Any, experiment: Experiment, lines: Sequence[Line]) -> Any:
    """Plot the MRR of each row with σ over its seeds, and the paper's figure if it has one.

    Each dataset and evaluation has a panel.
    """
    panels = list(dict.fromkeys((line.dataset, line.evaluation) for line in lines))
    most = max(sum((line.dataset, line.evaluation) == panel for line in lines) for panel in panels)
    height = 0.36 * most + 1.1
    figure, drawn = pyplot.subplots(
        len(panels), 1, figsize=(7.2, height * len(panels)), squeeze=False, layout="constrained"
    )
    ends = [
        mean + (std or 0) for line in lines for mean, std in [(line.values["mrr"].mean or 0, line.values["mrr"].std)]
    ]
    largest = max(*ends, *(line.values["mrr"].paper or 0 for line in lines), 0.0)
    encoders = {line.encoder for line in lines}
    for axes, (dataset, evaluation) in zip(drawn[:, 0], panels, strict=True):
        own = [line for line in lines if (line.dataset, line.evaluation) == (dataset, evaluation)]
        places = range(len(own))
        means = [line.values["mrr"].mean for line in own]
        spread = [line.values["mrr"].std for line in own]
        varied = any(std is not None for std in spread)
        axes.barh(
            places,
            [mean or 0 for mean in means],
            xerr=[float("nan") if std is None else std for std in spread] if varied else None,
            color=BLUE,
            height=0.62,
            capsize=3,
            label="ours" + (", ± σ over seeds" if varied else ""),
        )
        printed = [(place, line.values["mrr"].paper) for place, line in enumerate(own) if line.values["mrr"].paper]
        if printed:
            heights, figures = zip(*printed, strict=True)
            label = " and ".join(dict.fromkeys(line.paper_encoder for line in own if line.paper_encoder))
            label = f"the paper, {label}" if label.startswith("BERT") and " and " not in label else "the paper"
            axes.plot(figures, heights, "D", color=ORANGE, markersize=6, label=label)
        for place, line in enumerate(own):
            mean = means[place]
            words, figure_of_paper = f"{mean:.3f}" if mean is not None else line.status, line.values["mrr"].paper
            if figure_of_paper is not None:
                words = f"{words} (paper {figure_of_paper:.3f})"
            end = max((mean or 0) + (spread[place] or 0), figure_of_paper or 0)
            axes.annotate(words, (end, place), xytext=(7, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_yticks(
            places, [line.label if len(encoders) == 1 else f"{line.label} ({line.encoder})" for line in own]
        )
        axes.invert_yaxis()
        axes.set_xlim(0, (1.5 if printed else 1.2) * largest or 1)
        title = dataset if evaluation == TEST else f"{dataset}, tested on {evaluation}"
        axes.set_title(f"{title}: {own[0].encoder}" if len(encoders) == 1 else title, loc="left")
    if printed:
        handles, labels = drawn[-1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    drawn[-1, 0].set_xlabel("MRR on test")
    return figure
