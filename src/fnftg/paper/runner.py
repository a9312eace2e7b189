"""Runs the cells of a table one by one. Finished runs are kept, and interrupted runs are resumed.

FOLDER/runs/DATASET/ROW-ENCODER/seed-73/   a run as written by `fnftg train`, and cell.json once it is finished
FOLDER/graphs/DATASET-FIR[-CROSS]/         the graphs without the rarest relations, if the table needs them
FOLDER/texts/DATASET/ENCODER/              encoded texts, if their encoding time is part of the result
FOLDER/results.json, results.csv           every cell, and every row over its seeds
FOLDER/table.md, table.tex, *.png, *.svg   tables and plots to read
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fnftg.console import log
from fnftg.errors import DamagedError, FnftgError
from fnftg.files import new_file
from fnftg.json_files import read_json, write_json
from fnftg.kg.datasets import DATASETS, Archive, data_home, store_path, verify
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.kg.splits.fir import fir_split
from fnftg.kg.store import is_store
from fnftg.models.configs import from_dict
from fnftg.models.pretrained import CHECKPOINT, read_metrics
from fnftg.paper.budget import CAUTION, Budget, OutOfTime, Timing, epochs_of, share_of_epochs, timing
from fnftg.paper.experiments import READINGS, TEST, Experiment, Fields, Reader, Reading, Row
from fnftg.paper.published_results import IND
from fnftg.ranking.evaluation import chosen_triples, split_metrics
from fnftg.text.encoders import MINILM, SHORT_NAMES, is_made_of_texts, load_encoder
from fnftg.training import restart
from fnftg.training.run_config import RunConfig

DONE, NOT_YET, NO_TIME, QUOTED = "done", "not run yet", "not run: budget", "as published"
FAILED = "failed: "
CELL = "cell.json"
SMALLEST = "scratch:L-1_H-32_A-2"


@dataclass(frozen=True, eq=False)
class Data:
    """A graph that a table is built for."""

    name: str  # as given; the last part of a path
    graph: KnowledgeGraph | None  # None if the paper's data is not available
    paper: str | None  # the dataset of the paper that this is, if any
    folder: Path  # folder of its graphs without the rarest relations

    @classmethod
    def of(cls, name: str, folder: Path) -> Data:
        slug = name if name in DATASETS else Path(name).resolve().name
        if name in DATASETS and isinstance(DATASETS[name].source, Archive) and not is_store(store_path(name)):
            return cls(name, None, name, folder / "graphs")
        graph = open_graph(name)
        for split in ("train", "test"):
            if not len(graph.triples(split)):
                raise FnftgError(
                    f"{name} has no triples in {split}: split it first, for example with fnftg split inductive."
                )
        return cls(slug, graph, paper_dataset(graph), folder / "graphs")

    @cached_property
    def fir(self) -> dict[Reading, KnowledgeGraph]:
        """The graph without the rarest relations in each reading, created once.

        A reading is left out if it removes no relation of test, or every relation of train.
        """
        assert self.graph is not None
        found: dict[Reading, KnowledgeGraph] = {}
        for reading in READINGS:
            folder = self.folder / f"{self.name}-{reading.key.upper()}"
            if is_store(folder):
                found[reading] = open_graph(folder)
                continue
            try:
                graph = fir_split(self.graph, cross=reading.cross)
                chosen_triples(graph, "test", relations=removed_relations(self.graph, graph))
            except FnftgError as error:
                log(f"{self.name} has no FIR, {reading.words}: {error}")
            else:
                found[reading] = graph.save(folder)
        if not found:
            raise FnftgError(f"{self.name} has no relations that FIR could remove from train: choose another graph.")
        return found

    @property
    def readings(self) -> Sequence[Reading]:
        """The readings of FIR that the graph has; all of them if the graph is not available."""
        return READINGS if self.graph is None else list(self.fir)

    def unseen(self, reading: Reading) -> list[int]:
        """Return the relations that a reading of FIR removes from train."""
        assert self.graph is not None
        return removed_relations(self.graph, self.fir[reading])


def removed_relations(whole: KnowledgeGraph, fir: KnowledgeGraph) -> list[int]:
    """Return the relations that are in train of the whole graph only."""
    there = [set(np.unique(graph.triples("train")[:, 1]).tolist()) for graph in (whole, fir)]
    return sorted(there[0] - there[1])


def paper_dataset(graph: KnowledgeGraph) -> str | None:
    """Return the name of the paper's dataset that has the same triples, if any."""
    for name, record in DATASETS.items():
        if isinstance(record.source, Archive):
            try:
                verify(graph, name, record.source.fingerprints)
                return name
            except FnftgError:
                continue
    return None


@dataclass(frozen=True, eq=False)
class Cell:
    """A single run: a row with an encoder, a dataset and a seed."""

    row: Row
    reader: Reader
    data: Data
    seed: int
    fields: Fields

    @property
    def place(self) -> str:
        """The path of its run within the table's folder. Rows with the same model share a run."""
        return f"runs/{self.data.name}/{self.row.same_as or self.row.key}-{self.reader.slug}/seed-{self.seed}"

    @property
    def series(self) -> tuple[str, str, str]:
        """The key that it shares with its other seeds."""
        return self.data.name, self.row.key, self.reader.slug

    @property
    def label(self) -> str:
        return f"{self.row.label} ({self.reader.label}), {self.data.name}, seed {self.seed}"

    @property
    def graph(self) -> KnowledgeGraph:
        assert self.data.graph is not None
        return self.data.fir[self.row.fir] if self.row.fir else self.data.graph

    @cached_property
    def config(self) -> RunConfig:
        config: RunConfig = from_dict(RunConfig, self.fields)
        return config

    def with_epochs(self, epochs: int) -> RunConfig:
        return replace(self.config, training=replace(self.config.training, epochs=epochs))


Outcome = dict[str, Any]  # status; of finished cells also epochs, best_epoch, metrics by evaluation, seconds
Outcomes = dict[str, Outcome]  # by place of the cell


class TableRun:
    """The cells of an experiment in a folder."""

    def __init__(self, experiment: Experiment, cells: Iterable[Cell], folder: Path):
        self.experiment, self.cells, self.folder = experiment, list(cells), folder
        self.runs = list({cell.place: cell for cell in self.cells}.values())
        self.outcomes: Outcomes = {cell.place: self.known(cell) for cell in self.runs}
        if len({(cell.place, cell.row.key) for cell in self.cells}) < len(self.cells):
            raise FnftgError("Two datasets or two encoders have the same name: run them in separate commands.")
        self._missing: dict[str, str] = {}  # why an encoder is not available
        self._timed: dict[str, Timing] = {}  # by place of the cell
        self._warm = False
        self._share = 1.0  # share of the epochs that runs have; it only decreases

    def run(self, budget: Budget, report: Callable[[], None]) -> None:
        """Run everything that can be run; call `report` after each new result."""
        report()
        for position, cell in enumerate(self.runs, start=1):
            if self.outcomes[cell.place]["status"] != NOT_YET:
                continue
            log(f"[{position}/{len(self.runs)}] {cell.label}")
            self.outcomes[cell.place] = outcome = self.outcome(cell, budget)
            if outcome["status"] != DONE:
                log(f"  {outcome['status']}")
            report()
        failures = [outcome["status"] for outcome in self.outcomes.values() if outcome["status"].startswith(FAILED)]
        if failures and not any(outcome["status"] == DONE for outcome in self.outcomes.values()):
            raise FnftgError(failures[0].removeprefix(FAILED))

    def outcome(self, cell: Cell, budget: Budget) -> Outcome:
        try:
            if reason := self.unavailable(cell):
                return {"status": reason}
            with budget.enforced():
                if self.experiment.own_texts and not self._warm:
                    self.warm_up(cell)
                config = self.planned(cell, budget)
                return {"status": NO_TIME} if config is None else self.trained(cell, config)
        except OutOfTime:
            return {"status": NO_TIME}
        except FnftgError as error:
            return {"status": f"{FAILED}{error}"}

    def unavailable(self, cell: Cell) -> str:
        """Return why a cell cannot be run (its dataset or encoder is not available), or an empty string."""
        if cell.data.graph is None:
            return f"{cell.data.name} is not available: run fnftg data get {cell.data.name}"
        name = cell.reader.encoder
        if name not in self._missing:
            self._missing[name] = ""
            try:
                if not is_made_of_texts(name):
                    load_encoder(name)
            except FnftgError as error:
                fetched = f"encoder {SHORT_NAMES.get(name, name)} could not be downloaded"
                self._missing[name] = fetched if is_of_the_hub(name) else f"{FAILED}{error}"
        return self._missing[name]

    # Time

    def planned(self, cell: Cell, budget: Budget) -> RunConfig | None:
        """Return the config with as many epochs as there is time for, or None if there is no time for one epoch.

        The first seed of all rows comes first, and all rows have the same share of their epochs. A later seed is only
        run if there is time for the same number of epochs, so that means are over comparable runs.
        """
        begun = self.begun(cell)
        if begun is not None or not budget.limited:
            return begun or cell.config
        first = next(other for other in self.runs if other.series == cell.series)
        if first is not cell:
            found = self.outcomes[first.place]
            in_time = found["status"] == DONE and found["seconds"]["all"] <= CAUTION * budget.left()
            return cell.with_epochs(found["epochs"]) if in_time else None
        if not self._timed:
            self.time(budget)
        seconds = CAUTION * budget.left()
        waiting = [
            other
            for other in self.first_turn()
            if self.outcomes[other.place]["status"] == NOT_YET and (self.cost(other, 0) <= seconds or other is cell)
        ]
        most = max(other.config.training.epochs for other in waiting)
        self._share = min(self._share, share_of_epochs([partial(self.cost, other) for other in waiting], most, seconds))
        epochs = epochs_of(self._share, cell.config)
        fits = self.cost(cell, self._share) <= seconds
        log(
            f"  {f'{epochs} of' if fits else 'not one of'} {cell.config.training.epochs} epochs in {seconds:.0f} s left"
        )
        return cell.with_epochs(epochs) if fits else None

    def warm_up(self, cell: Cell) -> None:
        """Import and compile what every run needs, so that this is not counted in the first run's time."""
        text = replace(cell.config.model.text, encoder=SMALLEST, training="frozen", pooling="auto")
        config = replace(cell.config, model=replace(cell.config.model, text=text))
        with tempfile.TemporaryDirectory() as folder:
            timing(cell.graph, config, Path(folder), 1.0)
        self._warm = True

    def first_turn(self) -> list[Cell]:
        """Return the runs of the first seed."""
        return [cell for cell in self.runs if cell.seed == self.runs[0].seed and not cell.row.quoted]

    def time(self, budget: Budget) -> None:
        """Time every run of the first seed that is not finished."""
        waiting = [
            cell
            for cell in self.first_turn()
            if self.outcomes[cell.place]["status"] == NOT_YET and not self.unavailable(cell)
        ]
        log(f"  timing {len(waiting)} runs")
        for cell in waiting:
            with suppress(FnftgError):  # reported when the cell is run
                found = timing(cell.graph, cell.config, self.cache(cell), budget.left() / 4 / len(waiting))
                self.set_up_seconds(cell, found.first_set_up)
                self._timed[cell.place] = found

    def cost(self, cell: Cell, share: float) -> float:
        """Return the seconds of a run with a share of its epochs; runs that could not be timed will fail quickly."""
        if cell.place not in self._timed:
            return 0.0
        evaluations = len(evaluations_of(self.experiment, cell))
        return self._timed[cell.place].whole(cell.graph, cell.config, epochs_of(share, cell.config), evaluations)

    def begun(self, cell: Cell) -> RunConfig | None:
        """Return the config of a run that was interrupted after its first restart point."""
        from fnftg.training.loop import read_config

        run = self.folder / cell.place
        if not restart.exists(run):
            return None
        config = read_config(run)
        if cell.with_epochs(config.training.epochs) != config:
            raise FnftgError(f"{run} was started with other options: use the same options, or choose another folder.")
        return config

    def cache(self, cell: Cell) -> Path:
        """Return the folder for encoded texts."""
        own = self.folder / "texts" / cell.data.name / cell.reader.slug
        return own if self.experiment.own_texts else data_home() / "texts"

    # Runs

    def known(self, cell: Cell) -> Outcome:
        """Return the outcome of a cell from an earlier command."""
        file = self.folder / cell.place / CELL
        if not file.exists():
            return {"status": QUOTED if cell.row.quoted else NOT_YET}
        try:
            found: Outcome = read_json(file)
        except DamagedError as error:
            raise FnftgError(f"{file} is damaged: delete its folder and run the command again.") from error
        if found.pop("config") != json.loads(json.dumps(asdict(cell.with_epochs(found["epochs"])))):
            place = self.folder / cell.place
            raise FnftgError(f"{place} was trained with other options: use the same options, or choose another folder.")
        return found

    def trained(self, cell: Cell, config: RunConfig) -> Outcome:
        """Train or resume a run, and evaluate it."""
        from fnftg.training.loop import Run

        run, started = self.folder / cell.place, time.monotonic()
        resume = restart.exists(run)
        if not resume and run.exists():  # interrupted before its first restart point
            shutil.rmtree(run)
        training = Run(cell.graph, config, run, self.cache(cell), resume, None)
        set_up = self.set_up_seconds(cell, time.monotonic() - started)
        training.train()
        metrics = read_metrics(run / CHECKPOINT)
        ranked_from = time.monotonic()
        found = self.evaluated(cell, training, metrics[TEST])
        seconds = {
            "set_up": round(set_up, 2),
            "training": metrics["training_seconds"],
            "all": round(max(time.monotonic() - started, metrics["training_seconds"]), 1),
            "ranking": round(time.monotonic() - ranked_from, 1),
        }
        outcome = {
            "status": DONE,
            "epochs": config.training.epochs,
            "best_epoch": metrics["epoch"],
            "metrics": found,
            "seconds": seconds,
        }
        write_whole_json(run / CELL, {**outcome, "config": asdict(config)})
        return outcome

    def set_up_seconds(self, cell: Cell, measured: float) -> float:
        """Return the original set-up time, including text encoding, which later runs find in the cache."""
        note = self.cache(cell) / "set_up.json"
        if not self.experiment.own_texts:
            return measured
        if not note.exists():
            write_whole_json(note, {"seconds": measured})
        return float(read_json(note)["seconds"])

    def evaluated(self, cell: Cell, training: Any, test: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics by evaluation. A model is ranked in the graph that it was trained on."""
        unseen = {reading.unseen: reading for reading in READINGS}
        shared = (training.model, cell.graph, training.texts, "test", cell.config.training.evaluation_protocol)
        return {
            name: split_metrics(*shared, relations=cell.data.unseen(unseen[name])) if name in unseen else test
            for name in evaluations_of(self.experiment, cell)
        }


def evaluations_of(experiment: Experiment, cell: Cell) -> list[str]:
    """Return the evaluations of a cell: those of its table, without the readings of FIR that it does not have."""
    if list(experiment.figures) == [TEST]:
        return [TEST]
    own = [cell.row.fir] if cell.row.fir else cell.data.readings
    return [IND, *(reading.unseen for reading in own)]


def is_of_the_hub(encoder: str) -> bool:
    """Return whether an encoder must be downloaded, instead of being a folder or a package."""
    local = encoder == MINILM or encoder.startswith(("/", ".", "~")) or Path(encoder).exists()
    return not local and encoder.count("/") <= 1


def write_whole_json(path: Path, value: dict[str, Any], checksum: bool = True) -> None:
    with new_file(path, owned=True) as partial:
        write_json(partial, value, checksum)
