"""Accuracy against minutes: the runs of docs/results.json as points, the paper's figures as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from svg import BLUE, INK, LINE, SOFT, TEAL, Drawing

RUNS = {  # the measurements that are drawn, and what they are called
    "cost/frugal-1": "frugal, 1 epoch",
    "cost/frugal-2": "frugal, 2 epochs",
    "cost/frugal": "frugal",
    "cost/frugal-wn18rr": "frugal-wn18rr",
}
PAPER = {
    "paper/inductive/WN18RR_IND/fnf-tg-base": "paper, BERT-base",
    "paper/inductive/WN18RR_IND/fnf-tg-tiny": "paper, BERT-tiny",
}
LEFT, RIGHT, TOP, BOTTOM = 80, 930, 30, 350

Measurements = Mapping[str, Mapping[str, float]]


def ticks(low: float, high: float, step: float) -> Iterator[float]:
    """The multiples of the step from low to high, both included."""
    yield from (number * step for number in range(round(low / step), round(high / step) + 1))


def cost(measurements: Measurements) -> Drawing:
    missing = [name for name in (*RUNS, *PAPER) if name not in measurements]
    if missing:
        raise SystemExit(f"docs/results.json has no {', '.join(missing)}, which pictures/cost.svg shows.")
    runs = [(name, measurements[key]["minutes"], measurements[key]["mrr"]) for key, name in RUNS.items()]
    lines = [(name, measurements[key]["mrr"]) for key, name in PAPER.items()]
    _, most_minutes, best = max(runs, key=lambda run: run[2])
    heights = [mrr for _, _, mrr in runs] + [mrr for _, mrr in lines]
    low, high = int(min(heights) * 50) / 50, int(max(heights) * 50 + 1.5) / 50
    end = 5 * (int(1.1 * max(minutes for _, minutes, _ in runs) / 5) + 1)

    def x_of(minutes: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * minutes / end, 1)

    def y_of(mrr: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (mrr - low) / (high - low), 1)

    told = "; ".join(f"{name}: MRR {mrr:.3f} after {minutes:.1f} minutes" for name, minutes, mrr in runs)
    drawing = Drawing(960, 420, f"MRR on the test split of WN18RR_IND against minutes of training. {told}.")
    for tick in ticks(low, high, 0.02):
        drawing.path(f"M{LEFT} {y_of(tick):g} H{RIGHT}", LINE, 1)
        drawing.text(LEFT - 10, y_of(tick) + 5, f"{tick:.2f}", 13, SOFT, "end")
    for tick in ticks(0, end, 5):
        drawing.text(x_of(tick), BOTTOM + 22, f"{tick:g}", 13, SOFT, "middle")
    drawing.path(f"M{LEFT} {BOTTOM} H{RIGHT}", SOFT, 1.2)
    below = "minutes of training on one CPU core, text features included"
    drawing.text((LEFT + RIGHT) / 2, 400, below, 14, anchor="middle")
    drawing.text(26, (TOP + BOTTOM) / 2, "MRR on test", 14, anchor="middle", turned=-90)
    for name, mrr in lines:
        drawing.path(f"M{LEFT} {y_of(mrr):g} H{RIGHT}", BLUE, 1.6, dashes="7 5")
        drawing.text(RIGHT - 4, y_of(mrr) - 7, f"{name}: {mrr:.3f}", 13, BLUE, "end")
    for name, minutes, mrr in runs:
        x, y = x_of(minutes), y_of(mrr)
        drawing.circle(x, y, 6, TEAL, "#ffffff")
        drawing.text(x + 10, y - 24, name, 14, INK, bold=True)
        share = "" if mrr == best else f" ({mrr / best:.0%} of the best in {minutes / most_minutes:.0%} of its time)"
        drawing.text(x + 10, y - 8, f"{mrr:.3f} in {minutes:.1f} min{share}", 12, SOFT)
    return drawing
