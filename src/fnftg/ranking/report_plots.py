"""The plots of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from fnftg.errors import FnftgError
from fnftg.ranking.protocols import DEFAULT_PROTOCOL

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"  # a palette for colour-blind readers
MOST_RELATIONS = 30


def draw_all(curve: pl.DataFrame, found: dict[str, Any], folder: Path) -> dict[str, str]:
    """Draw the plots of a run from its learning curve and its results {protocol: results}; return {file: caption}."""
    try:
        import matplotlib
    except ImportError as error:
        raise FnftgError("Plots need matplotlib: pip install 'fnftg[plots]'.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    main = found[DEFAULT_PROTOCOL]
    pictures: dict[str, tuple[Any, Any, str]] = {
        "protocols.png": (
            protocols,
            found,
            "The same model under each protocol. Strict hides every edge between the two entities of a triple, so "
            "the difference between cumulative and strict comes from such edges. Held-out hides all edges of the "
            "split from every query and candidate, so that no answer lacks an edge that others have. Error bars: "
            "95 % intervals.",
        ),
        "baselines.png": (baselines, main, "MRR of the model and of baselines without a model (protocol cumulative)."),
        "relations.png": (relations, main, "MRR and number of triples by relation (protocol cumulative)."),
        "ranks.png": (ranks, main, "Distribution of the ranks of the true answers (protocol cumulative)."),
    }
    if main.get("calibration"):
        pictures["reliability.png"] = (
            calibration,
            main["calibration"],
            "Reliability of the probabilities: well calibrated ones lie on the diagonal. Larger points have more "
            "predictions. The uncalibrated baseline is the softmax of the scores (protocol cumulative).",
        )
    if "loss" in curve.columns:
        pictures = {
            "learning.png": (learning, curve, "Training loss and validation MRR."),
            **pictures,
        }
    with pyplot.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        for name, (draw, content, _) in pictures.items():
            figure = pyplot.figure(figsize=(8, 4.5), layout="constrained")
            draw(figure, content)
            figure.savefig(folder / name, dpi=144)
            pyplot.close(figure)
    return {name: caption for name, (_, _, caption) in pictures.items()}


def learning(figure: Any, curve: pl.DataFrame) -> None:
    axes = figure.add_subplot()
    steps = curve.drop_nulls("loss")
    axes.plot(steps["step"], steps["loss"], color=BLUE, label="training loss")
    axes.set(xlabel="step", ylabel="training loss", ylim=(0, None))
    if "val_mrr" in curve.columns:
        checks = curve.drop_nulls("val_mrr")
        other = axes.twinx()
        other.plot(checks["step"], checks["val_mrr"], color=ORANGE, marker="o", label="validation MRR")
        other.set(ylabel="validation MRR", ylim=(0, 1))
        other.spines["right"].set_visible(True)
        lines = [*axes.get_lines(), *other.get_lines()]
        axes.legend(lines, [line.get_label() for line in lines], loc="center right", frameon=False)


def protocols(figure: Any, found: dict[str, Any]) -> None:
    axes = figure.add_subplot()
    for place, (name, metric, colour) in enumerate(
        (("MRR", "mrr", BLUE), ("Hits@1", "hits@1", ORANGE), ("Hits@10", "hits@10", GREEN))
    ):
        where = [position + 0.27 * (place - 1) for position in range(len(found))]
        values = [results[metric] for results in found.values()]
        errors = reach(values, [results["intervals"][metric] for results in found.values()])
        bars = axes.bar(where, values, 0.25, yerr=errors, capsize=2, color=colour, label=name)
        axes.bar_label(bars, [f"{value:.3f}" for value in values], padding=3, fontsize=9)
    axes.set_xticks(range(len(found)), found)
    axes.set(xlabel="protocol", ylim=(0, 1.08))
    axes.legend(frameon=False, ncols=3, loc="upper right")


def baselines(figure: Any, results: dict[str, Any]) -> None:
    axes = figure.add_subplot()
    values = {"model": results["mrr"], **{name: found["mrr"] for name, found in results["baselines"].items()}}
    bars = axes.barh(list(values)[::-1], list(values.values())[::-1], color=[GREY] * (len(values) - 1) + [BLUE])
    axes.bar_label(bars, [f"{value:.4f}" for value in list(values.values())[::-1]], padding=4)
    axes.set(xscale="log", xlabel="MRR (logarithmic)", xlim=(min(values.values()) / 2, 3))


def relations(figure: Any, results: dict[str, Any]) -> None:
    rows = results["relations"][:MOST_RELATIONS][::-1]
    figure.set_size_inches(8, 1.2 + 0.32 * len(rows))
    axes = figure.add_subplot()
    values, bounds = [row["mrr"] for row in rows], [row["intervals"]["mrr"] for row in rows]
    errors = reach(values, bounds)
    places = range(len(rows))
    axes.barh(places, values, xerr=errors, capsize=2, color=BLUE)
    axes.set_yticks(places, [shortened(row["relation"]) for row in rows], fontsize=9)
    for place, row, (_, high) in zip(places, rows, bounds, strict=True):
        axes.text(high + 0.01, place, f"{row['mrr']:.3f}  (n = {row['triples']:,})", va="center", fontsize=9)
    more = len(results["relations"]) - len(rows)
    axes.set(
        xlabel="MRR" + (f" ({more:,} rarer relations are not shown)" if more else ""),
        xlim=(0, 1.3),
        xticks=[0, 0.25, 0.5, 0.75, 1],
    )


def calibration(figure: Any, values: dict[str, Any]) -> None:
    """Plot the observed frequency against the predicted probability of each bin."""
    figure.set_size_inches(6, 5.2)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    for name, words, colour in (("softmax", "uncalibrated (softmax)", ORANGE), ("calibrated", "calibrated", BLUE)):
        bins, error, first = (values[name][key] for key in ("bins", "expected_calibration_error", "of_first_answers"))
        said, came = [one["said"] for one in bins], [one["came_true"] for one in bins]
        label = f"{words}: ECE {error:.4f},\nfirst answers {first:.4f}"
        axes.plot(said, came, color=colour, linewidth=1, label=label)
        axes.scatter(said, came, [8 + 4 * one["predictions"] ** 0.3 for one in bins], color=colour)
    axes.set(xlabel="predicted probability", ylabel="share of correct answers", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_aspect("equal")
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def reach(values: list[float], bounds: list[list[float]]) -> list[list[float]]:
    """Return the distances from the values to their bounds, in the format of matplotlib's error bars."""
    return [
        [max(value - low, 0) for value, (low, _) in zip(values, bounds, strict=True)],
        [max(high - value, 0) for value, (_, high) in zip(values, bounds, strict=True)],
    ]


def shortened(name: str, most: int = 45) -> str:
    """Shorten a long relation to its end, which is usually more specific than its beginning."""
    return name if len(name) <= most else "…" + name[1 - most :]


def ranks(figure: Any, results: dict[str, Any]) -> None:
    axes = figure.add_subplot()
    histogram = results["rank_histogram"]
    bounds = [int(bound) for bound in histogram]
    names = [f"≤ {bound}" if bound < 1_000 else f"≤ {bound // 1_000}k" for bound in bounds]
    total = sum(histogram.values())
    bars = axes.bar(names, [count / total for count in histogram.values()], color=BLUE)
    axes.bar_label(bars, [f"{count / total:.1%}" for count in histogram.values()], padding=3, fontsize=9)
    axes.set(xlabel="rank (upper bound of the bin)", ylabel="share of queries")
