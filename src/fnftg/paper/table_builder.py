"""Builds a table of the paper from command-line options."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fnftg.console import print_table, print_text
from fnftg.ego.known_answers import KnownAnswers
from fnftg.errors import FnftgError, shortened
from fnftg.files import new_file
from fnftg.models.configs import from_dict
from fnftg.paper import dataset_table, paper_plots, published_results, result_tables
from fnftg.paper.budget import Budget
from fnftg.paper.experiments import Experiment, Fields, Row, experiment, readers, run_fields
from fnftg.paper.published_results import UNSEEN
from fnftg.paper.result_tables import Baseline, Line, Sheet, Value
from fnftg.paper.runner import Cell, Data, TableRun, write_whole_json
from fnftg.ranking.baselines import frequency_counts, random_values
from fnftg.ranking.metrics import metric_values, named
from fnftg.ranking.protocols import protocol
from fnftg.ranking.queries import Filter
from fnftg.training.recipes import SIZES, merge_fields
from fnftg.training.run_config import RunConfig
from fnftg.version import __version__


def build_table(chosen: Namespace, folder: Path, started: float) -> dict[str, Any]:
    """Run the cells of a table within the budget and write its files; return the content of results.json."""
    asked = experiment(chosen.name)
    budget = Budget(chosen.budget, started)
    rows = chosen_rows(asked, chosen)
    protocol(chosen.protocol)
    graphs = [Data.of(name, folder, chosen.cross) for name in chosen.dataset or asked.datasets]
    if all(data.graph is None for data in graphs):
        names = " and ".join(data.name for data in graphs)
        raise FnftgError(f"{names} is not available: get it with fnftg data get, or give another graph with --dataset.")
    table = TableRun(asked, chosen_cells(asked, rows, graphs, chosen), folder)
    results: dict[str, Any] = {}
    baselines = [line for data in graphs for line in baselines_of(asked, data, chosen.protocol)]

    def write() -> None:
        lines = result_tables.lines(asked, table.cells, table.outcomes)
        results.update(as_record(asked, table, lines, baselines, chosen))
        write_files(folder, results, result_tables.comma_separated(lines), sheets_of(asked, lines, baselines, chosen))

    table.run(budget, write)
    lines = result_tables.lines(asked, table.cells, table.outcomes)
    paper_plots.draw(asked, lines, folder)
    if not chosen.json:
        show(sheets_of(asked, lines, baselines, chosen))
    return results


def chosen_rows(asked: Experiment, chosen: Namespace) -> list[Row]:
    """Return the rows of the requested systems; by default all except extra rows."""
    there = list(dict.fromkeys(row.system for row in asked.rows))
    check_names("system", chosen.systems, there)
    check_names("size", chosen.sizes, SIZES)
    if chosen.sizes and chosen.encoder:
        raise FnftgError("--sizes and --encoder exclude each other: give one of them.")
    return [row for row in asked.rows if (row.system in chosen.systems if chosen.systems else not row.extra)]


def chosen_cells(asked: Experiment, rows: Sequence[Row], graphs: Sequence[Data], chosen: Namespace) -> list[Cell]:
    """Return the cells seed by seed, so that the table is complete before further seeds are run."""
    cells = []
    changes = [Change.of(assignment) for assignment in chosen.set]
    for seed in chosen.seeds or asked.seeds:
        for data in graphs:
            for row in rows:
                berts = asked.berts_of(row, data.paper)
                for reader in readers(row, berts, chosen.encoder, chosen.sizes, chosen.text_training):
                    fields = run_fields(row, reader, data.paper, seed, chosen.protocol)
                    for change in changes:
                        fields = change.upon(fields)
                    cells.append(Cell(row, reader, data, seed, fields))
    for change in changes:
        if not change.used:
            raise FnftgError(f"No run of this table has a field {'.'.join(change.path)}: see fnftg train --help.")
    return cells


@dataclass
class Change:
    """A config field set on the command line, for all runs that have it."""

    path: list[str]
    value: Any
    used: bool = False

    @classmethod
    def of(cls, assignment: str) -> Change:
        path, equals, value = assignment.partition("=")
        if not equals or not all(path.split(".")):
            raise FnftgError(f"--set {assignment} is not FIELD=VALUE: write for example --set training.batch_size=64.")
        return cls(path.split("."), yaml.safe_load(value))

    def upon(self, fields: Fields) -> Fields:
        there: Any = asdict(from_dict(RunConfig, fields))
        for name in self.path:
            if not isinstance(there, dict) or name not in there:
                return fields
            there = there[name]
        self.used = True
        nested = self.value
        for name in reversed(self.path):
            nested = {name: nested}
        changed = merge_fields(fields, nested)
        from_dict(RunConfig, changed)
        return changed


def baselines_of(asked: Experiment, data: Data, protocol_name: str) -> list[Baseline]:
    """Return the expected MRR of a random ranking, as in the paper.

    For unseen relations, also return a baseline that ranks entities by their frequency at that end of the relation.
    """
    if data.graph is None:
        return []
    chosen = protocol(protocol_name)
    candidates = chosen.candidate_entities(data.graph, "test")
    mrr = float(random_values(np.array(len(candidates) - 1))[0])
    printed = published_results.RANDOM.get(data.paper or "") if UNSEEN in asked.figures else None
    values = {metric: Value(mrr, paper=printed) if metric == "mrr" else Value(None) for metric in asked.metrics}
    found = [Baseline("random ranking", data.name, "–", values)]
    if UNSEEN in asked.figures:
        triples = data.graph.triples("test")
        triples = triples[np.isin(triples[:, 1], data.unseen)]
        relations = len(data.graph.relations)
        known = KnownAnswers.of(data.graph.all_triples(), len(data.graph.entities), relations)
        visible = chosen.visible_triples(data.graph, "test")
        counts = frequency_counts(triples, visible, Filter.of(known, candidates), candidates, relations)
        frequency = named(metric_values(*counts))
        values = {metric: Value(frequency[metric]) for metric in asked.metrics}
        found.append(Baseline("frequency baseline", data.name, UNSEEN, values))
    return found


def as_record(
    asked: Experiment, table: TableRun, lines: Sequence[Line], baselines: Sequence[Baseline], chosen: Namespace
) -> dict[str, Any]:
    """Return the content of results.json."""
    return {
        "table": asked.name,
        "fnftg": __version__,
        "protocol": chosen.protocol,
        "budget_minutes": chosen.budget,
        "rows": [line.record() for line in lines],
        "baselines": [
            {
                "dataset": line.dataset,
                "label": line.label,
                "evaluation": line.evaluation,
                **{metric: value.mean for metric, value in line.values.items()},
            }
            for line in baselines
        ],
        "cells": [
            {
                "folder": cell.place,
                "dataset": cell.data.name,
                "row": cell.row.key,
                "system": cell.row.system,
                "encoder": cell.reader.encoder,
                "text_training": cell.reader.training,
                "seed": cell.seed,
                **table.outcomes[cell.place],
            }
            for cell in table.cells
        ],
    }


def sheets_of(
    asked: Experiment, lines: Sequence[Line], baselines: Sequence[Baseline], chosen: Namespace
) -> list[Sheet]:
    budget = (
        "" if chosen.budget is None else f"  Run within a budget of {chosen.budget:g} minutes, which limits the epochs."
    )
    cross = "  FIR also lacks the relation that crosses 10 % of train." if chosen.cross else ""
    note = f"Test split, protocol {chosen.protocol}; mean ± σ over the seeds.{budget}{cross}"
    return result_tables.sheets(asked, lines, baselines, [note])


def build_dataset_table(chosen: Namespace, folder: Path) -> dict[str, Any]:
    names = chosen.dataset or list(published_results.DATASETS)
    records = [dataset_table.counted(Data.of(name, folder, False)) for name in names]
    results = {"table": "datasets", "fnftg": __version__, "rows": records}
    sheet = dataset_table.sheet(records)
    write_files(folder, results, dataset_table.comma_separated(records), [sheet])
    if not chosen.json:
        show([sheet])
    return results


def write_files(folder: Path, results: dict[str, Any], lines: str, sheets: Sequence[Sheet]) -> None:
    """Write the files, each in one atomic step."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"results.csv": lines, "table.md": result_tables.markdown(sheets), "table.tex": result_tables.latex(sheets)}
    for name, text in texts.items():
        with new_file(folder / name, force=True) as path:
            path.write_text(text, encoding="utf-8")
    write_whole_json(folder / "results.json", results, checksum=False)


def show(sheets: Sequence[Sheet]) -> None:
    for sheet in sheets:
        for section in dict.fromkeys(part for part, _ in sheet.rows):
            rows = [[entry.text() for entry in entries] for part, entries in sheet.rows if part == section]
            print_table(f"{sheet.title}, {section}" if section else sheet.title, sheet.columns, rows)
        print_text("\n".join(sheet.notes))


def check_names(what: str, asked: Sequence[str], there: Sequence[Any]) -> None:
    """Raise `FnftgError` unless all requested names exist."""
    for name in asked:
        if name not in there:
            raise FnftgError(f"There is no {what} {shortened(name)}: choose from {', '.join(there)}.")
