"""What a training run is told: the model, how it is trained, on which devices; and the recipes that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from fnftg.errors import FnftgError
from fnftg.models.losses import LossConfig
from fnftg.models.systems import SystemConfig, system
from fnftg.ranking.protocols import DEFAULT_PROTOCOL, protocol


@dataclass(frozen=True)
class TrainingConfig:
    """How the model is trained.

    Args:
        epochs: passes over the training triples.
        max_steps: on a large graph, fewer epochs: so many that they have no more steps than this, but at least one.
        batch_size: triples a step, over all devices; their entities are the negatives of each other.
        negatives: two-sided, the paper's: all entities of the batch; tied: its tails for tails, its heads for heads; or
            drawn, BLP's: so many for each triple as num_negatives says, independently of the batch's size.
        num_negatives: of drawn negatives, for a triple's two queries together.
        learning_rate: at the start, before the cosine decay; if none is given 1e-5 for every 32 triples of a batch.
        weight_decay: of RAdam, decoupled.
        grad_clip: the gradient's norm is cut to this; 0: never.
        accumulate: batches whose gradients are added up before a step; negatives stay within a batch.
        loss: the ranking loss.
        hidden: what is hidden from the ego-graphs of a triple: itself, or every edge of the pair.
        mask_known: known answers other than the target are no negatives.
        seed: of the weights, the order of triples, the ego-graphs and dropout.
        protocol: under which validation and the final test rank: own-split, cumulative or strict.
        validate_every: epochs between validations.
        validation_triples: how many val triples are ranked, drawn once; all if none is given.
        patience: validations without a better MRR after which training stops; never if none is given.
        refresh_every: with text.training finetune-centre, epochs between refreshes of the neighbours' cached vectors.
        save_every: steps between restart points, which are also made after each epoch.
        log_every: steps between lines of the log.
        logger: beside log.csv: none, tensorboard, wandb or mlflow.
    """

    epochs: int = 40
    max_steps: int | None = None
    batch_size: int = 128
    negatives: Literal["two-sided", "tied", "drawn"] = "two-sided"
    num_negatives: int = 64
    learning_rate: float | None = None
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    accumulate: int = 1
    loss: LossConfig = field(default_factory=LossConfig)
    hidden: Literal["target", "pair"] = "target"
    mask_known: bool = True
    seed: int = 73
    protocol: str = DEFAULT_PROTOCOL
    validate_every: int = 1
    validation_triples: int | None = None
    patience: int | None = None
    refresh_every: int = 1
    save_every: int = 1000
    log_every: int = 20
    logger: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"

    def __post_init__(self) -> None:
        protocol(self.protocol)
        if self.negatives not in ("two-sided", "tied", "drawn"):
            raise FnftgError(f"training.negatives is {self.negatives!r}: it must be two-sided, tied or drawn.")
        counts = (
            "epochs",
            "batch_size",
            "num_negatives",
            "accumulate",
            "validate_every",
            "refresh_every",
            "save_every",
        )
        for name in (*counts, "log_every"):
            if getattr(self, name) < 1:
                raise FnftgError(f"training.{name} is {getattr(self, name)}: it must be at least 1.")
        for name in ("max_steps", "learning_rate", "validation_triples", "patience"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise FnftgError(f"training.{name} is {getattr(self, name)}: it must be above 0.")
        if self.weight_decay < 0 or self.grad_clip < 0 or self.seed < 0:
            raise FnftgError("training.weight_decay, training.grad_clip and training.seed must not be negative.")

    def epochs_of(self, steps: int) -> int:
        """How many epochs of so many steps a run has."""
        return self.epochs if self.max_steps is None else max(1, min(self.epochs, self.max_steps // steps))

    @property
    def first_learning_rate(self) -> float:
        return self.learning_rate if self.learning_rate is not None else 1e-5 * self.batch_size / 32


@dataclass(frozen=True)
class TrainerConfig:
    """On what the model is trained, in the words of Lightning.

    Args:
        accelerator: cpu, cuda, mps or auto.
        devices: processes on this machine, each with a device of its own.
        num_nodes: machines, each started with torchrun.
        precision: auto, 32-true or bf16-mixed; auto takes bf16 where the hardware has it.
        threads: of each process on a CPU; all cores shared by the processes if none is given.
    """

    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.devices < 1 or self.num_nodes < 1 or (self.threads or 1) < 1:
            raise FnftgError("trainer.devices, trainer.num_nodes and trainer.threads must be at least 1.")


@dataclass(frozen=True)
class RunConfig:
    """A whole run; without a model its system's default."""

    model: SystemConfig = None  # type: ignore[assignment]
    training: TrainingConfig = field(default_factory=TrainingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    system: str = "fnf"

    def __post_init__(self) -> None:
        kind = system(self.system).config
        if self.model is None:
            object.__setattr__(self, "model", kind())
        if not isinstance(self.model, kind):
            raise FnftgError(f"The system {self.system} has a {kind.__name__}, not a {type(self.model).__name__}.")
        processes = self.trainer.devices * self.trainer.num_nodes
        if self.training.batch_size % processes:
            raise FnftgError(f"A batch of {self.training.batch_size} cannot be shared by {processes} processes.")

    @classmethod
    def field_types(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The config of the model is that of the system."""
        return {"model": system(values.get("system", "fnf")).config}


# Recipes by name

SIZES = ("tiny", "mini", "small", "medium", "base")
PAPER_DATASETS: dict[str, dict[str, Any]] = {  # appendix of the paper
    "wn18rr": {"model": {"ego": {"num_neighbours": 10}, "text": {"words": 24}}, "training": {"epochs": 40}},
    "fb15k237": {"model": {"ego": {"num_neighbours": 40}, "text": {"words": 24}}, "training": {"epochs": 40}},
    "wikidata5m": {"model": {"ego": {"num_neighbours": 1}, "text": {"words": 64}}, "training": {"epochs": 5}},
}
FRUGAL_TEXT = {"encoder": "minilm", "training": "frozen", "query": "vector", "width": 256}
FRUGAL_EGO = {"num_neighbours": 20, "evaluation_num_neighbours": 64}
FRUGAL_TRAINING: dict[str, Any] = {
    "epochs": 12,
    "batch_size": 512,
    "learning_rate": 1e-3,
    "loss": {"name": "infonce", "temperature": 4.0},
    "validate_every": 2,
    "validation_triples": 2000,
}
# The paper's FnF-TG in the frugal frame, then what goes beyond it.
FRUGAL_TG: dict[str, Any] = {
    "model": {
        "text": FRUGAL_TEXT,
        "graph": {"heads": 4, "modulated_values": True, "dropout": 0.1},
        "ego": FRUGAL_EGO,
    },
    "training": FRUGAL_TRAINING,
}
BEYOND: dict[str, Any] = {
    "model": {
        "text": {"dropout": 0.2},
        "score": "cosine",
        "graph": {"label_histogram": True},
        "votes": {"lookalikes": 100, "answers": 100, "parallels": True, "mentions": True, "precedents": True},
        "allow_self_answers": False,
    },
    "training": {"epochs": 8, "max_steps": 1100, "learning_rate": 3e-3, "loss": {"temperature": 0.05}},
}
FOR_WN18RR: dict[str, Any] = {
    "system": "ensemble",
    "model": {"members": 3},
    "training": {"validate_every": 8},
}
FOR_FB15K237: dict[str, Any] = {
    "model": {
        "text": {"dropout": 0.1},
        "graph": {"dropout": 0.2},
        "ego": {"num_neighbours": 30},
        "votes": {"evaluation_lookalikes": 1000},
    },
    "training": {"validate_every": 1},
}
PAPER_TEXT = {"training": "finetune", "query": "text", "pooling": "cls"}
SHARP = {"training": {"loss": {"temperature": 0.5}}}  # for vectors of length 1, which are never far apart
FRUGAL_T = {"model": {"ego_graphs": False, "relation_conditioning": False, "normalise": True}, **SHARP}  # FnF-T
FRUGAL_FNF = {
    "frugal": [FRUGAL_TG, BEYOND],
    "frugal-wn18rr": [FRUGAL_TG, BEYOND, FOR_WN18RR],
    "frugal-fb15k237": [FRUGAL_TG, BEYOND, FOR_FB15K237],
    "frugal-tg": [FRUGAL_TG],
    "frugal-t": [FRUGAL_TG, FRUGAL_T],
}
# Published architectures with the frugal encoder, width, loss and batch: what a system adds to these.
FRUGAL_SYSTEMS: dict[str, dict[str, Any]] = {
    "bow": SHARP,
    "dkrl": SHARP,
    "blp": SHARP,
    "kepler": {
        "model": {"text": {"training": "finetune", "query": "text", "width": None}},
        "training": {"batch_size": 64, "epochs": 1, "learning_rate": 1e-4, "validate_every": 1},
    },
    "star": {"model": {"rank_by": "distance"}, **SHARP},  # a frozen encoder leaves the classifier little to work with
    "statik": {"model": {"ego": FRUGAL_EGO}},
    "simkgc": {"training": {"loss": {"temperature": 0.05}}},
}


def recipe(name: str) -> dict[str, Any]:
    """The fields that a named recipe sets: frugal; frugal-tg and frugal-t, the paper's FnF-TG and FnF-T in its frame,
    frugal-blp and so on for the other systems; or dataset-size such as wn18rr-tiny (the paper's own FnF-TG)."""
    if name in FRUGAL_FNF:
        fields: dict[str, Any] = {"system": "fnf"}
        for part in FRUGAL_FNF[name]:
            fields = merged(fields, part)
        return fields
    first, _, second = name.partition("-")
    if first == "frugal" and second in FRUGAL_SYSTEMS:
        base = {"system": second, "model": {"text": FRUGAL_TEXT}, "training": FRUGAL_TRAINING}
        return merged(base, FRUGAL_SYSTEMS[second])
    if first not in PAPER_DATASETS or second not in SIZES:
        raise FnftgError(f"There is no recipe {name!r}: choose {', '.join(recipes())}, or give a file.")
    return merged({"system": "fnf", **PAPER_DATASETS[first]}, {"model": {"text": {**PAPER_TEXT, "encoder": second}}})


def recipes() -> list[str]:
    paper = [f"{dataset}-{size}" for dataset in PAPER_DATASETS for size in SIZES]
    return [*FRUGAL_FNF, *(f"frugal-{name}" for name in FRUGAL_SYSTEMS), *paper]


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Nested fields of `over` upon those of `base`."""
    both = {key: merged(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return {**base, **over, **both}
