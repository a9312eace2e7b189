"""The config of a training run: system, model, training and hardware."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fnftg.errors import FnftgError
from fnftg.models.losses import LossConfig
from fnftg.models.systems import SystemConfig, system
from fnftg.ranking.protocols import DEFAULT_PROTOCOL, Protocol, protocol


@dataclass(frozen=True)
class TrainingConfig:
    """How to train the model.

    Args:
        epochs: number of passes over the training triples.
        max_steps: upper bound on the number of steps; a large graph gets fewer epochs, or a part of one.
        batch_size: triples per step, over all devices; the entities of a batch are each other's negatives.
        negatives: two-sided (the paper's) uses all entities of the batch; tied uses tails for tail queries and heads
            for head queries; drawn (BLP's) samples num_negatives per triple.
        num_negatives: sampled negatives for the two queries of a triple together; only used if negatives is drawn.
        learning_rate: initial learning rate of the cosine decay; if null, 1e-5 × batch_size / 32.
        weight_decay: decoupled weight decay of the RAdam optimiser.
        grad_clip: maximum norm of the gradient; 0 turns clipping off (the paper's).
        accumulate: number of batches whose gradients are averaged before a step; negatives stay within a batch.
        loss: the ranking loss.
        hidden: edges hidden from the ego-graphs of a triple: the target, or every edge between its pair of entities.
        mask_known: do not use known answers as negatives; the paper leaves out only the target.
        seed: random seed of the weights, the order of triples, the ego-graphs and dropout.
        protocol: protocol of the validation and of the final test: own-split, cumulative, strict or held-out.
        candidates: candidates of the validation and of the final test: dynamic, or transfer (the entities of the split
            only); if null, those of the protocol.
        validate_every: epochs between validations.
        validation_triples: size of the fixed sample of val triples that is ranked; null ranks all.
        patience: stop after this many validations without a better MRR; null never stops early. Needs a val split.
        refresh_every: epochs between refreshes of the neighbours' cached vectors, if text.training is finetune-centre.
        save_every: steps between restart points; each epoch ends with one too.
        log_every: steps between lines of log.csv.
        logger: logger in addition to log.csv: none, tensorboard, wandb or mlflow.
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
    candidates: Literal["dynamic", "transfer"] | None = None
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
        counts = ("epochs", "batch_size", "num_negatives", "accumulate")
        for name in (*counts, "validate_every", "refresh_every", "save_every", "log_every"):
            if getattr(self, name) < 1:
                raise FnftgError(f"training.{name} is {getattr(self, name)}: it must be at least 1.")
        for name in ("max_steps", "learning_rate", "validation_triples", "patience"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise FnftgError(f"training.{name} is {getattr(self, name)}: it must be above 0.")
        if self.weight_decay < 0 or self.grad_clip < 0 or self.seed < 0:
            raise FnftgError("training.weight_decay, training.grad_clip and training.seed must not be negative.")

    def steps_of(self, triples: int) -> int:
        """Return the number of steps per epoch with this many training triples, limited by `max_steps`."""
        steps = triples // self.batch_size
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def epochs_of(self, triples: int) -> int:
        """Return the number of epochs with this many training triples, limited by `max_steps`."""
        return self.epochs if self.max_steps is None else min(self.epochs, self.max_steps // self.steps_of(triples))

    @property
    def evaluation_protocol(self) -> Protocol:
        """The protocol of the validation and of the final test."""
        named = protocol(self.protocol)
        return named if self.candidates is None else replace(named, candidates=self.candidates)

    @property
    def first_learning_rate(self) -> float:
        """The initial learning rate."""
        return self.learning_rate if self.learning_rate is not None else 1e-5 * self.batch_size / 32


@dataclass(frozen=True)
class TrainerConfig:
    """The hardware to train on, as in Lightning.

    Args:
        accelerator: cpu, cuda, mps or auto.
        devices: number of processes on this machine, each with its own device.
        num_nodes: number of machines, each started with torchrun.
        precision: auto, 32-true or bf16-mixed; auto uses bf16 on CUDA GPUs that support it.
        threads: CPU threads per process; if null, the processes share all cores.
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
    """The config of a training run.

    Args:
        model: the model; its fields and defaults depend on the system.
        training: how to train the model.
        trainer: the hardware to train on.
        system: the system to train: fnf, ensemble, bow, dkrl, blp, kepler, star, statik or simkgc.

    Examples:
        >>> RunConfig(training=TrainingConfig(epochs=3))
    """

    model: SystemConfig = None  # type: ignore[assignment]
    training: TrainingConfig = field(default_factory=TrainingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    system: str = "fnf"

    def __post_init__(self) -> None:
        kind = system(self.system).config
        if self.model is None:
            object.__setattr__(self, "model", kind())
        if not isinstance(self.model, kind):
            raise FnftgError(f"The system {self.system} needs a {kind.__name__}, not a {type(self.model).__name__}.")
        processes = self.trainer.devices * self.trainer.num_nodes
        if self.training.batch_size % processes:
            raise FnftgError(
                f"training.batch_size is {self.training.batch_size}: it must be a multiple of {processes}, the number "
                "of processes."
            )

    @classmethod
    def field_types(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the type of `model`, which depends on the system."""
        return {"model": system(values.get("system", "fnf")).config}
