"""Builds a table of the paper from command-line options."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fnftg.arrays import Int64Array
from fnftg.console import print_table, print_text
from fnftg.ego.known_answers import KnownAnswers
from fnftg.errors import FnftgError, shortened
from fnftg.files import new_file
from fnftg.models.configs import from_dict
from fnftg.paper import dataset_table, paper_plots, published_results, result_tables
from fnftg.paper.budget import Budget
from fnftg.paper.experiments import Experiment, Fields, Reading, Row, experiment, readers, run_fields
from fnftg.paper.result_tables import Baseline, Line, Sheet, Value
from fnftg.paper.runner import Cell, Data, TableRun, write_whole_json
from fnftg.ranking.baselines import frequency_counts, random_values
from fnftg.ranking.evaluation import chosen_triples
from fnftg.ranking.metrics import metric_values, named
from fnftg.ranking.protocols import Protocol, protocol
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
    graphs = [Data.of(name, folder) for name in chosen.dataset or asked.datasets]
    if all(data.graph is None for data in graphs):
        names = " and ".join(data.name for data in graphs)
        raise FnftgError(f"{names} is not available: get it with fnftg data get, or give another graph with --dataset.")
    rules = {data.name: rules_of(asked, data, chosen) for data in graphs}
    table = TableRun(asked, chosen_cells(asked, rows, graphs, rules, chosen), folder)
    results: dict[str, Any] = {}
    baselines = [line for data in graphs for line in baselines_of(asked, data, rules[data.name])]

    def write() -> None:
        lines = result_tables.lines(asked, table.cells, table.outcomes)
        results.update(as_record(asked, table, lines, baselines, rules, chosen.budget))
        sheets = sheets_of(asked, lines, baselines, rules, chosen.budget)
        write_files(folder, results, result_tables.comma_separated(lines), sheets)

    table.run(budget, write)
    lines = result_tables.lines(asked, table.cells, table.outcomes)
    paper_plots.draw(asked, lines, folder)
    if not chosen.json:
        show(sheets_of(asked, lines, baselines, rules, chosen.budget))
    return results


def chosen_rows(asked: Experiment, chosen: Namespace) -> list[Row]:
    """Return the rows of the requested systems; by default all except extra rows."""
    there = list(dict.fromkeys(row.system for row in asked.rows))
    check_names("system", chosen.systems, there)
    check_names("size", chosen.sizes, SIZES)
    if chosen.sizes and chosen.encoder:
        raise FnftgError("--sizes and --encoder exclude each other: give one of them.")
    return [row for row in asked.rows if (row.system in chosen.systems if chosen.systems else not row.extra)]


@dataclass(frozen=True)
class Rules:
    """How the test split of a dataset is ranked."""

    protocol: Protocol
    candidates: int | None  # their number in the whole graph; None if the graph is not available

    @property
    def note(self) -> str:
        among = "" if self.candidates is None else f", {self.candidates:,} candidates"
        return f"Test split, protocol {self.protocol.name}{among}; mean ± σ over the seeds."


def rules_of(asked: Experiment, data: Data, chosen: Namespace) -> Rules:
    """Return the protocol of a dataset, with the paper's candidates unless others are requested."""
    candidates = chosen.candidates or asked.setting(data.paper).candidates
    rules = replace(protocol(chosen.protocol), candidates=candidates)
    return Rules(rules, None if data.graph is None else len(rules.candidate_entities(data.graph, "test")))


def chosen_cells(
    asked: Experiment, rows: Sequence[Row], graphs: Sequence[Data], rules: Mapping[str, Rules], chosen: Namespace
) -> list[Cell]:
    """Return the cells seed by seed, so that the table is complete before further seeds are run."""
    cells = []
    changes = [Change.of(assignment) for assignment in chosen.set]
    settings = {data.name: asked.setting(data.paper) for data in graphs}
    seeds = {name: chosen.seeds or setting.seeds for name, setting in settings.items()}
    for seed in dict.fromkeys(seed for own in seeds.values() for seed in own):
        for data in graphs:
            if seed not in seeds[data.name]:
                continue
            candidates = rules[data.name].protocol.candidates
            for row in rows:
                if row.fir and row.fir not in data.readings:
                    continue
                berts = asked.berts_of(row, data.paper)
                for reader in readers(row, berts, chosen.encoder, chosen.sizes, chosen.text_training):
                    fields = run_fields(row, reader, settings[data.name], seed, chosen.protocol, candidates)
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


def baselines_of(asked: Experiment, data: Data, rules: Rules) -> list[Baseline]:
    """Return the expected MRR of a random ranking of the candidates, as in the paper.

    For unseen relations, also return a baseline that ranks entities by their frequency at that end of the relation.
    """
    if data.graph is None or rules.candidates is None:
        return []
    mrr = float(random_values(np.array(rules.candidates - 1))[0])
    printed = published_results.RANDOM.get(data.paper or "")
    values = {metric: Value(mrr, paper=printed) if metric == "mrr" else Value(None) for metric in asked.metrics}
    found = [Baseline("random ranking", data.name, "–", values)]
    for reading in data.readings if any(row.fir for row in asked.rows) else ():
        frequency = named(metric_values(*unseen_frequencies(data, reading, rules.protocol)))
        values = {metric: Value(frequency[metric]) for metric in asked.metrics}
        found.append(Baseline("frequency baseline", data.name, reading.unseen, values))
    return found


def unseen_frequencies(data: Data, reading: Reading, rules: Protocol) -> tuple[Int64Array, Int64Array]:
    """Return the counts of the frequency baseline for the relations that a reading of FIR removes, in its graph."""
    graph = data.fir[reading]
    candidates, relations = rules.candidate_entities(graph, "test"), len(graph.relations)
    known = KnownAnswers.of(graph.all_triples(), len(graph.entities), relations)
    triples = chosen_triples(graph, "test", relations=data.unseen(reading))
    visible = rules.visible_triples(graph, "test")
    return frequency_counts(triples, visible, Filter.of(known, candidates), candidates, relations)


def as_record(
    asked: Experiment,
    table: TableRun,
    lines: Sequence[Line],
    baselines: Sequence[Baseline],
    rules: Mapping[str, Rules],
    budget: float | None,
) -> dict[str, Any]:
    """Return the content of results.json."""
    return {
        "table": asked.name,
        "fnftg": __version__,
        "ranking": {
            name: {"protocol": own.protocol.described(), "candidates": own.candidates} for name, own in rules.items()
        },
        "budget_minutes": budget,
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
            for cell in table.runs
        ],
    }


def sheets_of(
    asked: Experiment,
    lines: Sequence[Line],
    baselines: Sequence[Baseline],
    rules: Mapping[str, Rules],
    budget: float | None,
) -> list[Sheet]:
    limit = "" if budget is None else f"  Run within a budget of {budget:g} minutes, which limits the epochs."
    notes = {name: [f"{own.note}{limit}", *asked.notes] for name, own in rules.items()}
    return result_tables.sheets(asked, lines, baselines, notes)


def build_dataset_table(chosen: Namespace, folder: Path) -> dict[str, Any]:
    names = chosen.dataset or list(published_results.DATASETS)
    records = [dataset_table.counted(Data.of(name, folder)) for name in names]
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
