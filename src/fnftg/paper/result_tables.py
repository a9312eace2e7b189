"""Result tables over seeds, with the paper's figures, as JSON, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fnftg.paper.experiments import TEST, Experiment
from fnftg.paper.runner import DONE, Cell, Outcomes, evaluations_of

TITLES = {"mrr": "MRR", "hits@1": "H@1", "hits@3": "H@3", "hits@10": "H@10"}


@dataclass(frozen=True)
class Value:
    """A metric over seeds: mean, sample standard deviation (None for one seed), and the paper's figure."""

    mean: float | None
    std: float | None = None
    paper: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], paper: float | None = None) -> Value:
        mean = statistics.fmean(values) if values else None
        return cls(mean, statistics.stdev(values) if len(values) > 1 else None, paper)

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Line:
    """The results of a row on one dataset and evaluation, over its seeds."""

    dataset: str
    section: str
    row: str  # key
    label: str
    latex: str
    encoder: str
    paper_encoder: str  # the encoder of the paper's figures; empty if it has none
    evaluation: str
    values: dict[str, Value]
    seconds: Value  # training time, including text encoding
    epochs: list[int]
    seeds: list[int]  # finished seeds
    asked: int  # number of requested seeds
    status: str  # done, or why a seed is missing

    def record(self) -> dict[str, Any]:
        """Return the line as a record of results.json."""
        values = {
            metric: {"mean": value.mean, "std": value.std, "paper": value.paper, "difference": value.difference}
            for metric, value in self.values.items()
        }
        facts = {name: getattr(self, name) for name in ("dataset", "section", "row", "label", "encoder")}
        facts |= {name: getattr(self, name) for name in ("paper_encoder", "evaluation", "epochs", "seeds", "status")}
        return {**facts, **values, "seconds": {"mean": self.seconds.mean, "std": self.seconds.std}}


def lines(experiment: Experiment, cells: Sequence[Cell], outcomes: Outcomes) -> list[Line]:
    """Aggregate the cells over seeds, in the order of the table."""
    series: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        series.setdefault(cell.series, []).append(cell)
    found = []
    for evaluation in experiment.figures:
        for group in series.values():
            if evaluation in evaluations_of(experiment, group[0]):
                found.append(_line(experiment, evaluation, group, outcomes))
    order = {name: place for place, name in enumerate(dict.fromkeys(cell.data.name for cell in cells))}
    return sorted(found, key=lambda line: order[line.dataset])


def _line(experiment: Experiment, evaluation: str, group: list[Cell], outcomes: Outcomes) -> Line:
    cell = group[0]
    done = [(other, outcomes[other.place]) for other in group if outcomes[other.place]["status"] == DONE]
    printed = experiment.printed(evaluation, cell.data.paper, cell.row, cell.reader.bert)
    missing = [outcomes[other.place]["status"] for other in group if outcomes[other.place]["status"] != DONE]
    berts = experiment.berts_of(cell.row, cell.data.paper)
    return Line(
        dataset=cell.data.name,
        section=cell.row.section,
        row=cell.row.key,
        label=cell.row.label,
        latex=cell.row.latex,
        encoder=cell.reader.label,
        paper_encoder=f"BERT-{cell.reader.bert or berts[0]}" if printed else "",
        evaluation=evaluation,
        values={
            metric: Value.of([outcome["metrics"][evaluation][metric] for _, outcome in done], printed.get(metric))
            for metric in experiment.metrics
        },
        seconds=Value.of([o["seconds"]["set_up"] + o["seconds"]["training"] for _, o in done]),
        epochs=sorted({outcome["epochs"] for _, outcome in done}),
        seeds=[other.seed for other, _ in done],
        asked=len(group),
        status=missing[0] if missing else DONE,
    )


# Sheets: the content of Markdown and LaTeX tables


@dataclass(frozen=True)
class Number:
    """A formatted figure."""

    mean: float | None
    std: float | None = None
    digits: int = 3
    signed: bool = False

    def text(self) -> str:
        if self.mean is None:
            return "–"
        shown = f"{self.mean:{'+' if self.signed else ''},.{self.digits}f}".replace("-", "−")
        return shown if self.std is None else f"{shown} ± {self.std:,.{self.digits}f}"

    def latex(self) -> str:
        if self.mean is None:
            return "--"
        shown = f"{self.mean:{'+' if self.signed else ''},.{self.digits}f}".replace(",", "{,}")
        deviation = f"{self.std or 0:,.{self.digits}f}".replace(",", "{,}")
        return f"${shown}$" if self.std is None else f"${shown}_{{\\pm {deviation}}}$"


@dataclass(frozen=True)
class Label:
    """A text with an optional LaTeX version."""

    words: str
    code: str = ""

    def text(self) -> str:
        return self.words

    def latex(self) -> str:
        return self.code or escaped(self.words)


Entry = Number | Label


@dataclass(frozen=True)
class Sheet:
    """A table to print: `rows` with `columns`. A new part begins wherever the section changes."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Entry]]]  # section, entries
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Baseline:
    """A baseline without a model."""

    label: str
    dataset: str
    evaluation: str
    values: dict[str, Value]


def sheets(
    experiment: Experiment, found: Sequence[Line], baselines: Sequence[Baseline], notes: Mapping[str, Sequence[str]]
) -> list[Sheet]:
    """Build a sheet per dataset, with its notes, and the paper's figures and the differences if the paper has it."""
    made = []
    for dataset in dict.fromkeys(line.dataset for line in found):
        own = [line for line in found if line.dataset == dataset]
        compared = any(line.paper_encoder for line in own)
        evaluations = list(experiment.figures)
        columns = ["Model", *(["Evaluation"] if evaluations != [TEST] else [])]
        for metric in experiment.metrics:
            columns += [TITLES[metric], *(["paper", "Δ"] if compared else [])]
        columns += [*(["training, s"] if experiment.own_texts else []), "epochs", "seeds"]
        rows = [(line.section, _entries(line, evaluations, compared, experiment.own_texts)) for line in own]
        rows += [
            ("Without a model", _baseline_entries(line, evaluations, compared, len(columns)))
            for line in baselines
            if line.dataset == dataset
        ]
        made.append(Sheet(f"{experiment.name}: {dataset}", columns, rows, [*notes[dataset], *_comparison(own)]))
    return made


def _entries(line: Line, evaluations: list[str], compared: bool, timed: bool) -> list[Entry]:
    model = f"{line.label} ({line.encoder})"
    entries: list[Entry] = [Label(model, f"{line.latex} ({escaped(line.encoder)})" if line.latex else "")]
    if evaluations != [TEST]:
        entries.append(Label(line.evaluation))
    for position, value in enumerate(line.values.values()):
        why = line.status if position == 0 and not line.seeds and line.status != DONE else ""
        entries.append(Label(why) if why else Number(value.mean, value.std))
        if compared:
            entries += [Number(value.paper), Number(value.difference, signed=True)]
    if timed:
        entries.append(Number(line.seconds.mean, line.seconds.std, digits=0))
    entries.append(Label(", ".join(map(str, line.epochs)) or "–"))
    entries.append(
        Label(str(len(line.seeds)) if len(line.seeds) in (0, line.asked) else f"{len(line.seeds)} of {line.asked}")
    )
    return entries


def _baseline_entries(line: Baseline, evaluations: list[str], compared: bool, columns: int) -> list[Entry]:
    entries: list[Entry] = [Label(line.label)]
    if evaluations != [TEST]:
        entries.append(Label(line.evaluation))
    for value in line.values.values():
        entries.append(Number(value.mean, digits=4))
        if compared:
            entries += [Number(value.paper, digits=4), Number(value.difference, digits=4, signed=True)]
    return entries + [Label("–")] * (columns - len(entries))


def _comparison(own: Sequence[Line]) -> list[str]:
    """Note whose figures are compared, if the encoders differ."""
    others = dict.fromkeys((line.paper_encoder, line.encoder) for line in own if line.paper_encoder)
    return [
        f"The paper's figures are for {theirs}, fine-tuned; ours are for {ours}."
        for theirs, ours in others
        if theirs != ours
    ]


def markdown(made: Iterable[Sheet]) -> str:
    blocks = []
    for sheet in made:
        rows, section = [sheet.columns, ["---"] + ["---:"] * (len(sheet.columns) - 1)], ""
        for part, entries in sheet.rows:
            if part != section:
                rows.append([f"*{part}*"] + [""] * (len(sheet.columns) - 1))
                section = part
            rows.append([entry.text().replace("|", "\\|") for entry in entries])
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        blocks.append("\n\n".join([f"## {sheet.title}", table, *sheet.notes]))
    return "\n\n".join(blocks) + "\n"


def latex(made: Iterable[Sheet]) -> str:
    """Format the tables for a document with \\usepackage{graphicx, amsmath, bm}."""
    blocks = []
    for sheet in made:
        width, section = len(sheet.columns), ""
        body = [" & ".join(rf"\textbf{{{escaped(column)}}}" for column in sheet.columns) + r" \\", r"\hline"]
        for part, entries in sheet.rows:
            if part != section:
                body.append(rf"\hline \multicolumn{{{width}}}{{c}}{{\textit{{{escaped(part)}}}}} \\")
                section = part
            body.append(" & ".join(entry.latex() for entry in entries) + r" \\")
        caption = " ".join(map(escaped, (f"{sheet.title}.", *sheet.notes)))
        table = [
            r"\begin{table*}[tb]",
            r"\centering",
            r"\resizebox{\textwidth}{!}{",
            rf"\begin{{tabular}}{{l{'c' * (width - 1)}}}",
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}}",
            rf"\caption{{{caption}}}",
            r"\end{table*}",
        ]
        blocks.append("\n".join(table))
    return "\n\n".join(blocks) + "\n"


ESCAPES = str.maketrans(
    {
        **{mark: rf"\{mark}" for mark in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "∖": r"$\setminus$",
        "−": "$-$",
        "⁻": "$^{-}$",
        "¹": "$^{1}$",
        "±": r"$\pm$",
        "‖": r"$\Vert$",
        "Δ": r"$\Delta$",
        "σ": r"$\sigma$",
        "–": "--",
        "…": r"\ldots{}",
    }
)


def escaped(words: str) -> str:
    """Escape a text for LaTeX."""
    return words.translate(ESCAPES)


def comma_separated(found: Sequence[Line]) -> str:
    """Format one line per row, evaluation and metric."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = ("dataset", "section", "row", "label", "encoder", "evaluation")
    writer.writerow(
        [*columns, "metric", "mean", "std", "seeds", "epochs", "paper", "paper_encoder", "difference", "status"]
    )
    for line in found:
        for metric, value in line.values.items():
            facts = [getattr(line, column) for column in columns]
            own = [metric, value.mean, value.std, len(line.seeds), " ".join(map(str, line.epochs))]
            writer.writerow([*facts, *own, value.paper, line.paper_encoder, value.difference, line.status])
    return file.getvalue()
