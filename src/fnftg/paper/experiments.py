"""The tables of the paper as rows, and each row as the fields of a training config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fnftg.errors import FnftgError
from fnftg.models.systems import system
from fnftg.paper import published_results as paper
from fnftg.text.encoders import SCRATCH, SHORT_NAMES
from fnftg.training.recipes import SIZES, merge_fields, recipe_fields

Fields = dict[str, Any]  # nested fields of a RunConfig

SYSTEMS = {
    "dkrl": "DKRL",
    "bow": "BOW",
    "blp": "BLP",
    "kepler": "KEPLER",
    "simkgc": "SimKGC",
    "fnf-t": "FnF-T",
    "star": "StAR",
    "statik": "StATIK",
    "fnf-tg": "FnF-TG",
}
TEXT_ONLY, STRUCTURE_INFORMED = "Text-only models", "Structure-informed models"
TEXT_ALONE: Fields = {"model": {"ego_graphs": False, "relation_conditioning": False}}  # turns FnF-TG into FnF-T
OWN_FIELDS: dict[str, Fields] = {
    "fnf-t": TEXT_ALONE,
    "simkgc": {"training": {"loss": {"name": "infonce", "temperature": 0.05}, "mask_known": True}},  # as published
}
TEST = "test"  # the default evaluation of a run


@dataclass(frozen=True)
class Setting:
    """How the paper trains and ranks on a dataset: its recipe, its candidates and its seeds."""

    recipe: str
    candidates: Literal["dynamic", "transfer"] = "dynamic"
    seeds: tuple[int, ...] = (73, 21, 37, 3, 7)


SETTINGS = {
    paper.WN18RR: Setting("wn18rr"),
    paper.FB15K237: Setting("fb15k237"),
    paper.WIKIDATA5M: Setting("wikidata5m", "transfer", (73, 21)),
}


@dataclass(frozen=True)
class Reading:
    """A reading of the paper's "until 10 % of edges have been removed", which defines the training graph FIR.

    Args:
        key: name in folders and rows.
        words: the reading in words.
        cross: also remove the relation that crosses 10 %.
    """

    key: str
    words: str
    cross: bool

    @property
    def unseen(self) -> str:
        """The evaluation on the relations that are removed."""
        return f"{paper.UNSEEN}, {self.words}"


READINGS = (Reading("fir", "up to 10 %", False), Reading("fir-cross", "past 10 %", True))


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        key: name in folders and results; with the BERT, also the key of the paper's figures.
        system: the system to train, one of SYSTEMS.
        label: the name in tables.
        section: the part of the table.
        berts: the BERTs that the paper uses for this row, largest first; by default those of the table.
        fields: config fields that differ from the system's own.
        fir: train without the rarest relations, as this reading removes them.
        same_as: key of a row with the same model, whose run this row shows.
        extra: not in a table of the paper, so only run on request.
        quoted: a published figure for comparison, which is not run.
        printed_as: key of the paper's figures, if it differs from `key`.
        latex: the label in LaTeX, if it differs from the text.
    """

    key: str
    system: str
    label: str
    section: str = ""
    berts: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    fir: Reading | None = None
    same_as: str = ""
    extra: bool = False
    quoted: bool = False
    printed_as: str = ""
    latex: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table of the paper: its rows, its datasets, and the published figures."""

    name: str
    summary: str
    datasets: tuple[str, ...]
    rows: tuple[Row, ...]
    figures: Mapping[str, paper.Results]  # by evaluation
    berts: Mapping[str, str] = field(default_factory=dict)  # for rows that name none, by dataset; default: base
    metrics: tuple[str, ...] = paper.METRICS
    notes: tuple[str, ...] = ()  # below every table
    own_texts: bool = False  # encode the texts for this table only, since the time is part of the result

    def setting(self, dataset: str | None) -> Setting:
        """Return the setting of a dataset. Datasets that the paper does not have are treated like the first one."""
        return SETTINGS[dataset or self.datasets[0]]

    def berts_of(self, row: Row, dataset: str | None) -> tuple[str, ...]:
        """Return the BERTs of a row, for other datasets those of the table's first one."""
        return row.berts or (self.berts.get(dataset or self.datasets[0], "base"),)

    def printed(self, evaluation: str, dataset: str | None, row: Row, bert: str | None) -> paper.Figures:
        """Return the paper's figures for a row on one of its datasets, or an empty dict."""
        berts = self.berts_of(row, dataset)
        key = f"{row.printed_as or row.key}-{bert or berts[0]}"
        return self.figures[evaluation].get(dataset or "", {}).get(key, {})


def _row(system: str, section: str, berts: tuple[str, ...] = ("base",), extra: bool = False) -> Row:
    return Row(system, system, SYSTEMS[system], section, berts, OWN_FIELDS.get(system, {}), extra=extra)


LARGEST_FIRST = tuple(reversed(SIZES))
INDUCTIVE = Experiment(
    "inductive",
    "Test results on WN18RR_IND and FB15k-237_IND: DKRL, BOW, BLP, StAR, StATIK, and FnF-T, FnF-TG in five sizes.",
    (paper.WN18RR, paper.FB15K237),
    (
        _row("dkrl", TEXT_ONLY),
        _row("bow", TEXT_ONLY),
        _row("blp", TEXT_ONLY),
        _row("kepler", TEXT_ONLY, extra=True),
        _row("simkgc", TEXT_ONLY, extra=True),
        _row("fnf-t", TEXT_ONLY, LARGEST_FIRST),
        _row("star", STRUCTURE_INFORMED),
        _row("statik", STRUCTURE_INFORMED),
        _row("fnf-tg", STRUCTURE_INFORMED, LARGEST_FIRST),
    ),
    {TEST: paper.INDUCTIVE},
)
WIKIDATA = Experiment(
    "wikidata",
    "Test results on Wikidata5M_IND: KEPLER, BLP, StATIK, and FnF-T, FnF-TG in five sizes.",
    (paper.WIKIDATA5M,),
    (
        _row("kepler", TEXT_ONLY),
        _row("blp", TEXT_ONLY),
        _row("simkgc", TEXT_ONLY, extra=True),
        _row("fnf-t", TEXT_ONLY, LARGEST_FIRST),
        _row("statik", STRUCTURE_INFORMED),
        _row("fnf-tg", STRUCTURE_INFORMED, LARGEST_FIRST),
    ),
    {TEST: paper.WIKIDATA},
)


def _ablation() -> tuple[Row, ...]:
    """Return the rows of the ablation, each with one more component removed from FnF-TG."""
    steps: tuple[tuple[str, str, str, Fields], ...] = (
        ("fnf-tg", "FnF-TG", "", {}),
        ("relations", "− r_ij", r"$-$ $r_{ij}$", {"model": {"graph": {"relations": False}}}),
        (
            "segments",
            "− s[CENTRE], s[NEIGHBOUR]",
            r"$-$ $s_{\texttt{[CENTRE]}}$, $s_{\texttt{[NEIGHBOUR]}}$",
            {"model": {"graph": {"segments": False}}},
        ),
        ("ego-graphs", "− E(h), E(t)", r"$-$ $E(\bm{h}_{TT})$, $E(\bm{t}_{TT})$", {"model": {"ego_graphs": False}}),
        (
            "conditioning",
            "− [h‖r], [t‖r⁻¹]",
            r"$-$ $[h||r]_{KG}$, $[t||r^{-1}]_{KG}$",
            {"model": {"relation_conditioning": False}},
        ),
    )
    rows, fields = [], dict[str, Any]()
    for key, label, latex, change in steps:
        fields = merge_fields(fields, change)
        rows.append(Row(key, "fnf-tg", label, fields=fields, latex=latex))
    return tuple(rows)


def _controlled() -> tuple[Row, ...]:
    """Return the rows from BLP to FnF-T, each with one more change.

    The last change leads to FnF-T: the paper's last two rows are one model with the same figures. All rows are
    therefore FnF-T; the first has BLP's relations, width, batch size and negatives.
    """
    blp: Fields = {
        "model": {"text": {"width": 128}},
        "training": {"batch_size": 64, "negatives": "drawn", "num_negatives": 64},
    }
    steps: tuple[tuple[str, str, Fields], ...] = (
        ("inductive-relations", "+ inductive relations", blp),  # the recipe's
        ("batch-tying", "+ negatives batch tying", {"training": {"negatives": "tied"}}),
        ("embedding-size", "+ bigger embedding size", {"model": {"text": {"width": None}}}),
        ("batch-size", "+ bigger batch size", {"training": {"batch_size": 128}}),
    )
    table = merge_fields(merge_fields(TEXT_ALONE, blp), {"model": {"relations": "table"}})
    rows = [Row("quoted", "fnf-t", "BLP, as published", quoted=True)]
    rows.append(Row("blp", "fnf-t", "FnF-T with BLP's settings", fields=table))
    fields = TEXT_ALONE
    for key, label, change in steps:
        fields = merge_fields(fields, change)
        rows.append(Row(key, "fnf-t", label, fields=fields))
    fields = merge_fields(fields, {"training": {"negatives": "two-sided"}})
    last = Row("fnf-t", "fnf-t", "FnF-T", fields=fields)
    return (*rows, replace(last, key="sampling", label="+ better sampling method", same_as=last.key), last)


CONTROLLED = Experiment(
    "controlled",
    "From BLP to FnF-T: inductive relations, batch-tied negatives, larger embeddings and batches, two-sided sampling.",
    (paper.WN18RR, paper.FB15K237),
    _controlled(),
    {TEST: paper.CONTROLLED},
    metrics=("mrr",),
    notes=("The last two rows are one model, trained once.",),
)
ABLATION = Experiment(
    "ablation",
    "FnF-TG without r_ij, then also without segment embeddings, ego-graphs and relation conditioning.",
    (paper.WN18RR, paper.FB15K237),
    _ablation(),
    {TEST: paper.ABLATION},
    berts={paper.WN18RR: "medium", paper.FB15K237: "small"},
    metrics=("mrr",),
)
LATENCY = Experiment(
    "latency",
    "Figure: accuracy of FnF-TG against its training time, by the size of the text encoder.",
    (paper.WN18RR, paper.FB15K237),
    (_row("fnf-tg", "", LARGEST_FIRST),),
    {TEST: paper.LATENCY},
    metrics=("mrr",),
    own_texts=True,
)


def _fully_inductive() -> tuple[Row, ...]:
    """Return the rows trained on all relations and, in each reading, without the rarest ones."""
    rows = []
    for name in ("fnf-t", "fnf-tg"):
        own = _row(name, SYSTEMS[name], ("tiny",))
        rows.append(replace(own, key=f"{name}-ind", label=f"{own.label}, trained on IND"))
        for reading in READINGS:
            label = f"{own.label}, trained on FIR, {reading.words}"
            rows.append(replace(own, key=f"{name}-{reading.key}", label=label, fir=reading, printed_as=f"{name}-fir"))
    return tuple(rows)


FULLY_INDUCTIVE = Experiment(
    "fully-inductive",
    "Trained with and without the rarest relations (FIR), tested on all relations and on the removed ones.",
    (paper.WN18RR, paper.FB15K237, paper.WIKIDATA5M),
    _fully_inductive(),
    {
        paper.IND: paper.FULLY_INDUCTIVE[paper.IND],
        **{reading.unseen: paper.FULLY_INDUCTIVE[paper.UNSEEN] for reading in READINGS},
    },
    notes=(
        "FIR lacks the rarest relations of train: up to 10 % of its triples, or also the relation that goes past 10 %. "
        "A model is ranked in the graph that it was trained on, and the frequency baseline in FIR.",
    ),
)
EXPERIMENTS = {
    experiment.name: experiment for experiment in (INDUCTIVE, WIKIDATA, CONTROLLED, ABLATION, LATENCY, FULLY_INDUCTIVE)
}


@dataclass(frozen=True)
class Reader:
    """The text encoder of a row, and how it is trained."""

    encoder: str  # a name that load_encoder accepts
    training: str  # finetune, frozen or finetune-centre
    bert: str | None = None  # its size, if it is one of the paper's BERTs, trained as in the paper
    frugal: bool = False  # use the frugal recipe of the system instead of the paper's

    @property
    def label(self) -> str:
        """A label that never mistakes another encoder for the paper's."""
        name = f"BERT-{self.encoder}" if self.encoder in SHORT_NAMES else self.encoder
        if self.encoder == "minilm":
            name = "all-MiniLM-L6-v2"
        elif self.encoder.startswith(SCRATCH):
            name = f"untrained {self.encoder.removeprefix(SCRATCH).replace('_', ' ')}"
        elif Path(self.encoder).expanduser().is_dir():
            name = Path(self.encoder).expanduser().resolve().name
        return name if self.bert else f"{name}, {'fine-tuned' if self.training == 'finetune' else self.training}"

    @property
    def slug(self) -> str:
        name = Path(self.encoder).name if "/" in self.encoder else self.encoder
        return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in f"{name}-{self.training}")


def readers(
    row: Row, berts: tuple[str, ...], encoders: list[str], sizes: list[str], training: str | None
) -> list[Reader]:
    """Return the encoders of a row: the requested encoders, else BERTs of the requested sizes, else the paper's."""
    if encoders:
        asked = training or "frozen"
        return [Reader(name, text_training(row, asked), frugal=asked == "frozen") for name in encoders]
    chosen = [size for size in LARGEST_FIRST if size in sizes] if sizes else berts
    asked = training or "finetune"
    bert = asked == "finetune"
    return [Reader(size, text_training(row, asked), size if bert else None, asked == "frozen") for size in chosen]


def text_training(row: Row, asked: str) -> str:
    """Return how a row trains its encoder. KEPLER always trains it; StATIK never trains on neighbours.

    Without neighbours, finetune-centre is the same as finetune.
    """
    if row.system == "kepler":
        return "finetune"
    if row.system == "statik":
        return "finetune-centre" if asked == "finetune" else asked
    neighbours = row.system == "fnf-tg" and row.fields.get("model", {}).get("ego_graphs", True)
    return "finetune" if asked == "finetune-centre" and not neighbours else asked


def run_fields(row: Row, reader: Reader, setting: Setting, seed: int, protocol: str, candidates: str) -> Fields:
    """Return the fields of a run: the frugal or the paper's recipe, then the encoder's fields, then the row's."""
    name = "fnf" if row.system in ("fnf-t", "fnf-tg") else row.system
    if reader.frugal:
        base = recipe_fields(f"frugal-{row.system.removeprefix('fnf-')}")
    else:
        base = recipe_fields(f"{setting.recipe}-{SIZES[0]}")  # any size, since the encoder is set below
        known = {field.name for field in dataclasses.fields(system(name).config)}
        base = {**base, "system": name, "model": {key: base["model"][key] for key in base["model"] if key in known}}
    text = {"encoder": reader.encoder, "training": reader.training}
    if reader.encoder not in SHORT_NAMES:
        text["pooling"] = "auto"  # sentence encoders do not use [CLS]
    training = {"seed": seed, "protocol": protocol, "candidates": candidates}
    chosen = {"model": {"text": text}, "training": training}
    return merge_fields(merge_fields(base, chosen), dict(row.fields))


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise FnftgError(f"The paper has no table {name!r}: choose one of {', '.join([*EXPERIMENTS, 'datasets'])}.")
    return EXPERIMENTS[name]
