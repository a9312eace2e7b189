"""The table of dataset statistics, with the paper's figures for comparison."""

from __future__ import annotations

import csv
import io
from typing import Any

from fnftg.kg.statistics import statistics
from fnftg.paper import published_results as paper
from fnftg.paper.result_tables import Entry, Label, Number, Sheet
from fnftg.paper.runner import DONE, Data

SUMMARY = "Dataset statistics: relations, and the entities, triples and ego-graph sizes of each split."
COLUMNS = tuple(paper.DATASETS[paper.WN18RR])  # relations, train.entities, …, test.ego_graph_std
SPLITS = ("train", "val", "test")


def counted(data: Data) -> dict[str, Any]:
    """Return the figures of one dataset: ours (if available), the paper's, and the difference."""
    ours: dict[str, float | None] = dict.fromkeys(COLUMNS)
    if data.graph is not None:
        found = statistics(data.graph)
        for column in COLUMNS:
            split, _, name = column.rpartition(".")
            ours[column] = found["splits"].get(split, {}).get(name) if split else found[name]
    printed = paper.DATASETS.get(data.paper or "", {})
    record = {}
    for column, value in ours.items():
        figure = printed.get(column)
        difference = None if value is None or figure is None else round(value, digits(column)) - figure
        record[column] = {"ours": value, "paper": figure, "difference": difference}
    status = DONE if data.graph is not None else f"not available: run fnftg data get {data.name}"
    return {"dataset": data.name, "status": status, "figures": record}


def digits(column: str) -> int:
    return 2 if "ego_graph" in column else 0


def sheet(records: list[dict[str, Any]]) -> Sheet:
    """Lay out the table as in the paper: relations, then entities, triples and ego-graph sizes of each split."""
    columns = ["", "relations"]
    for split in SPLITS:
        columns += [f"{split}: entities", f"{split}: triples", f"{split}: ego-graph"]
    rows: list[tuple[str, list[Entry]]] = []
    for record in records:
        for source, label in (("ours", "ours"), ("paper", "paper"), ("difference", "Δ")):
            figures = {column: values[source] for column, values in record["figures"].items()}
            signed = source == "difference"
            entries: list[Entry] = [Label(label), Number(figures["relations"], digits=0, signed=signed)]
            for split in SPLITS:
                entries += [Number(figures[f"{split}.{name}"], None, 0, signed) for name in ("entities", "triples")]
                spread = figures[f"{split}.ego_graph_std"]
                entries.append(Number(figures[f"{split}.ego_graph_mean"], spread, 2, signed))
            if any(value is not None for value in figures.values()) or source == "ours":
                rows.append(
                    (f"{record['dataset']}{'' if record['status'] == DONE else ', ' + record['status']}", entries)
                )
    note = (
        "Entities of val and test are those not in train. Ego-graph: mean ± σ of an entity's outgoing edges among the "
        "split's own triples. Differences are computed from the printed digits."
    )
    return Sheet("datasets", columns, rows, [note])


def comma_separated(records: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["dataset", "figure", "ours", "paper", "difference", "status"])
    for record in records:
        for column, values in record["figures"].items():
            writer.writerow([record["dataset"], column, *values.values(), record["status"]])
    return file.getvalue()
