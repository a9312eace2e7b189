"""The training loop. It writes to the folder of the run:

    RUN/config.json       graph and config
    RUN/log.csv           loss, learning rate, speed and validation results
    RUN/checkpoint/       the weights with the best validation MRR (see models/pretrained.py)
    RUN/restart/          the restart point (see restart.py)

Lightning Fabric handles devices, processes and precision.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.console import Progress, log
from fnftg.ego.context import GraphContext
from fnftg.ego.known_answers import KnownAnswers
from fnftg.errors import FnftgError
from fnftg.files import is_partial, new_file, remove_abandoned
from fnftg.json_files import write_json
from fnftg.kernels.determinism import deterministic
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.memory import keep_freed_memory
from fnftg.models.configs import from_dict, with_former_values
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.pretrained import CHECKPOINT, from_pretrained, read_metrics, save_pretrained
from fnftg.models.systems import system
from fnftg.ranking.evaluation import split_metrics
from fnftg.ranking.queries import Queries
from fnftg.ranking.runs import CONFIG, LOG, RunFolder
from fnftg.text.encoders import load_encoder
from fnftg.text.rows import GraphLines, graph_key
from fnftg.text.text_transformer import GraphTexts
from fnftg.training import restart
from fnftg.training.batches import TrainingBatch, epoch_order
from fnftg.training.evidence_fitting import fit_evidence, fits_evidence, has_parts_to_fit_on
from fnftg.training.log_file import LogFile
from fnftg.training.objective import Objective, StepInputs
from fnftg.training.restart import TrainingState
from fnftg.training.run_config import RunConfig, TrainerConfig


def train_run(
    graph: KnowledgeGraph,
    config: RunConfig,
    run: Path,
    cache: Path | None = None,
    resume: bool = False,
    after_step: Callable[[int, float], None] | None = None,
) -> LinkPredictor:
    """Train a model and return the best checkpoint.

    Args:
        graph: the training graph.
        config: the config.
        run: the folder of the run.
        cache: folder for tokens and features of texts, shared by runs; None for no cache.
        resume: continue the run from its restart point.
        after_step: called after each step with the step number and its loss.
    """
    return Run(graph, config, run, cache, resume, after_step).train()


def read_config(run: Path) -> RunConfig:
    """Read the config of a run."""
    fields = RunFolder(run).started_with()["config"]
    if isinstance(fields.get("model"), dict):
        fields = {**fields, "model": with_former_values(fields["model"])}
    config: RunConfig = from_dict(RunConfig, fields)
    return config


class Run:
    """A training run and its state; the arguments are those of `train_run`."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: RunConfig,
        run: Path,
        cache: Path | None,
        resume: bool,
        after_step: Callable[[int, float], None] | None,
    ):
        if not len(graph.triples("train")):
            raise FnftgError("The graph has no triples in train: split it, or import it with its splits.")
        if len(graph.triples("train")) < config.training.batch_size:
            raise FnftgError(
                f"training.batch_size is {config.training.batch_size}, but train has only "
                f"{len(graph.triples('train'))} triples: lower --training.batch_size."
            )
        if config.training.patience is not None and not len(graph.triples("val")):
            raise FnftgError("--training.patience needs a val split: split the graph, or leave out the option.")
        self.graph, self.config, self.run, self.after_step = graph, config, run, after_step
        keep_freed_memory()
        self.fabric = make_fabric(config.trainer, make_logger(config.training.logger, run))
        self.first = self.fabric.is_global_zero
        self.place = TrainingState(graph_key(graph))
        self._claim(resume)
        torch.manual_seed(config.training.seed)
        encoder = load_encoder(config.model.text.encoder, GraphLines(graph), cache=cache)
        self.model = system(config.system).make(config.model, encoder, len(graph.relations))
        self.objective = Objective(self.model, config.training.loss)
        trained = [parameter for parameter in self.objective.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.RAdam(
            trained,
            lr=config.training.first_learning_rate,
            weight_decay=config.training.weight_decay,
            decoupled_weight_decay=True,
        )
        resumed = resume and restart.exists(run)
        if resumed:
            self.place = restart.load(run, self.objective, self.optimiser)
        if not self.first:
            self.fabric.barrier()  # the first process computes features, the others find them in the cache
        self.cached_by: restart.Weights | None = (
            None  # the encoder that computed the cached features, if text.training is finetune-centre
        )
        self.texts = self._texts(cache, restart.load_cached(run) if resumed else None)
        self.cache = cache
        self.encode_queries(graph.up_to("val").all_triples())
        if self.first:
            self.fabric.barrier()
        self.context = GraphContext.of(self.texts, graph.triples("train"), self.model.ego.directions)
        self.model.register_seen(self.context, np.unique(graph.triples("train")[:, 1]))
        self.known = KnownAnswers.of(graph.triples("train"), len(graph.entities), len(graph.relations))
        self.wrapped, self.stepper = self.fabric.setup(self.objective, self.optimiser)

    def _texts(self, cache: Path | None, cached_by: restart.Weights | None) -> GraphTexts:
        """Return the graph's texts; cached features are computed by the encoder of the last refresh."""
        if self.config.model.text.training != "finetune-centre":
            return self.model.texts(self.graph, cache)
        encoder = self.model.tt.encoder.model
        present = {name: weight.clone() for name, weight in encoder.state_dict().items()}
        self.cached_by = cached_by or present
        encoder.load_state_dict(self.cached_by)
        texts = self.model.texts(self.graph, cache)
        encoder.load_state_dict(present)
        return texts

    def encode_queries(self, triples: Triples) -> None:
        """Compute the features of the queries' texts in advance, if the system reads such texts with a frozen encoder.

        Those of test are encoded when they are ranked.
        """
        if self.model.reads_query_texts and self.texts.features is not None:
            queries = Queries.of(triples, len(self.graph.relations))
            second_rows = self.texts.relation_row(torch.from_numpy(queries.labels.astype(np.int64))).numpy()
            self.texts.features.add_pairs(queries.centres.astype(np.int64), second_rows, self.cache)

    def refresh(self) -> None:
        """Compute the cached features again."""
        self.model.tt.refresh(self.texts)
        self.cached_by = {name: weight.clone() for name, weight in self.model.tt.encoder.model.state_dict().items()}

    def _claim(self, resume: bool) -> None:
        """Create the run's folder, or check that it can be resumed."""
        if resume:
            if not (self.run / CONFIG).is_file():
                raise FnftgError(f"{self.run} contains no run to resume: start a new run with -o {self.run}.")
            if self.first:
                remove_abandoned(self.run)
            keys = [RunFolder(self.run).started_with()["graph_key"]]
            if restart.exists(self.run):
                state = restart.read_state(self.run)
                keys.append(state.graph)
            else:
                state = self.place
                log(f"{self.run} has no restart point yet: training starts from the beginning.")
            if any(key not in (None, self.place.graph) for key in keys):
                raise FnftgError(f"{self.run} was started with another graph: resume it with that graph.")
            if not state.is_reached(self.epochs, self.steps_an_epoch):
                raise FnftgError(
                    f"The restart point of {self.run} is at step {state.step} of epoch {state.epoch}, which its config "
                    f"never reaches. {restart.WHAT_TO_DO}"
                )
        elif self.first:
            if self.run.exists() and any(not is_partial(path) for path in self.run.iterdir()):
                raise FnftgError(f"{self.run} already exists: continue with --resume {self.run}, or use another name.")
            self.run.mkdir(parents=True, exist_ok=True)
            with new_file(self.run / CONFIG) as path:
                graph = "" if self.graph.path is None else str(self.graph.path.resolve())
                write_json(path, {"graph": graph, "graph_key": self.place.graph, "config": asdict(self.config)})

    @property
    def steps_an_epoch(self) -> int:
        """The number of steps per epoch, limited by `max_steps`."""
        return self.config.training.steps_of(len(self.graph.triples("train")))

    @property
    def epochs(self) -> int:
        """The number of epochs, limited by `max_steps`."""
        return self.config.training.epochs_of(len(self.graph.triples("train")))

    def train(self) -> LinkPredictor:
        """Train until the last epoch, or until patience runs out, and return the best model."""
        training = self.config.training
        started = time.monotonic() - self.place.seconds
        whole = len(self.graph.triples("train")) // training.batch_size
        if self.first and (self.epochs < training.epochs or self.steps_an_epoch < whole):
            said = f"Training {self.epochs} instead of {training.epochs} epochs of {whole:,} steps"
            if self.steps_an_epoch < whole:
                said = f"Training {self.steps_an_epoch:,} of the {whole:,} steps of an epoch"
            log(f"{said}, because --training.max_steps is {training.max_steps:,}.")
        if self.first:
            self.log_file = LogFile(self.run / LOG, self.place.log)
        triples = training.batch_size * self.steps_an_epoch * self.epochs
        progress = Progress("Training", triples, "triples", done=training.batch_size * self.place.step)
        with progress, deterministic(), stop_signals() as self.stop_asked:
            while self.place.epoch < self.epochs and not self.is_over():
                self.epoch(progress, started)
        return self.finish()

    def is_over(self) -> bool:
        """Return whether patience has run out."""
        patience = self.config.training.patience
        waited = (self.place.epoch - self.place.best_epoch) // self.config.training.validate_every
        return patience is not None and waited >= patience

    def epoch(self, progress: Progress, started: float) -> None:
        """Train one epoch, or the rest of it, then validate and save."""
        place, training = self.place, self.config.training
        order = epoch_order(len(self.graph.triples("train")), training.seed, place.epoch)
        done = place.step - place.epoch * self.steps_an_epoch
        if self.cached_by is not None and place.epoch and not done and place.epoch % training.refresh_every == 0:
            self.refresh()
        self.wrapped.train()
        for index in range(done, self.steps_an_epoch):
            loss = self.step(order, index)
            place.step += 1
            place.seconds = time.monotonic() - started
            progress.advance(training.batch_size, f"epoch {place.epoch + 1}, loss {loss:.4f}")
            if place.step % training.log_every == 0:
                self.log(loss=loss, learning_rate=self.learning_rate(), triples_per_second=round(progress.rate, 1))
            if self.after_step is not None:
                self.after_step(place.step, loss)
            if (index + 1) % training.accumulate or index + 1 == self.steps_an_epoch:
                continue
            if place.step % training.save_every == 0 or self.stop_asked():
                self.save()
            if self.stop_asked():
                self.stop()
        place.epoch += 1
        if place.epoch % training.validate_every == 0 or place.epoch == self.epochs:
            self.validate(loss)
        place.seconds = time.monotonic() - started
        self.save()
        if self.stop_asked():
            self.stop()

    def stop(self) -> None:
        log(f"Stopped after step {self.place.step:,}. Continue with: fnftg train --resume {self.run}")
        raise KeyboardInterrupt

    def step(self, order: Any, index: int) -> float:
        """Train on one batch and return its loss; the result depends only on weights, seed, epoch and step."""
        training, place = self.config.training, self.place
        rows = order[index * training.batch_size : (index + 1) * training.batch_size]
        triples = self.graph.triples("train")[rows]
        batch = TrainingBatch.of(triples, len(self.graph.relations), self.fabric.global_rank, self.fabric.world_size)
        key = (training.seed, place.epoch, place.step)
        egos = self.context.ego_graphs(
            self.model.ego, batch.queries.centres, batch.hidden(training.hidden), key, batch.streams, training=True
        )
        negatives = batch.negatives(
            self.known if training.mask_known else None,
            training.negatives,
            training.num_negatives,
            (*key, self.fabric.global_rank),
            self.model.queue_ids(),
        )
        torch.manual_seed(
            int(np.random.SeedSequence([*key, self.fabric.global_rank]).generate_state(1, np.uint64)[0] >> 1)
        )
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate()
        last_of_several = (index + 1) % training.accumulate == 0 or index + 1 == self.steps_an_epoch
        with self.fabric.no_backward_sync(self.wrapped, enabled=not last_of_several):
            loss = self.wrapped(StepInputs(self.context, batch, egos, negatives))
            value = float(self.fabric.all_reduce(loss.detach(), reduce_op="mean"))
            if not math.isfinite(value):
                raise FnftgError(
                    f"The loss is {value} at step {place.step + 1}: train again with a --training.learning_rate below "
                    f"{training.first_learning_rate:g}; nothing was overwritten."
                )
            self.fabric.backward(loss / training.accumulate)
        if last_of_several:
            if training.grad_clip:
                self.fabric.clip_gradients(self.wrapped, self.stepper, max_norm=training.grad_clip)
            self.stepper.step()
            self.stepper.zero_grad()
        return value

    def learning_rate(self) -> float:
        """Return the learning rate of this step: cosine decay to 0 over the whole run."""
        share = self.place.step / max(self.epochs * self.steps_an_epoch, 1)
        return self.config.training.first_learning_rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2

    def validate(self, loss: float) -> None:
        """Rank the val triples and save the checkpoint if it is the best so far."""
        training, place = self.config.training, self.place
        if not len(self.graph.triples("val")):
            return
        found = None
        if self.first:
            found = self.ranked("val", training.validation_triples)
            self.log(loss=loss, val_mrr=found["mrr"], val_hits_at_1=found["hits@1"], val_hits_at_10=found["hits@10"])
            log(
                f"epoch {place.epoch}/{self.epochs}  loss {loss:.4f}  val MRR {found['mrr']:.4f}  "
                f"Hits@1 {found['hits@1']:.4f}  Hits@10 {found['hits@10']:.4f}  {place.seconds:.0f} s"
            )
        mrr = float(self.fabric.broadcast(found["mrr"] if found else 0.0))
        if mrr > place.best:
            place.best, place.best_epoch = mrr, place.epoch
            if self.first:
                self.save_checkpoint({"val": found, "epoch": place.epoch})

    def ranked(self, split: str, sample: int | None = None) -> dict[str, Any]:
        """Return the metrics of a split with the current weights."""
        texts = replace(self.texts)
        if self.cached_by is not None:
            self.model.tt.refresh(texts)  # the features that a loaded checkpoint would compute
        return split_metrics(self.model, self.graph, texts, split, self.config.training.evaluation_protocol, sample)

    def finish(self) -> LinkPredictor:
        """Load the best weights, fit the evidence, rank the test split if there is one, and return the model."""
        if self.first:
            if not (self.run / CHECKPOINT).exists():
                self.save_checkpoint({"epoch": self.place.epoch})
            best = from_pretrained(self.run)
            self.model.load_state_dict(best.state_dict())
            metrics = read_metrics(self.run / CHECKPOINT)
            if fits_evidence(self.model) and "evidence" not in metrics:
                if has_parts_to_fit_on(self.graph):
                    metrics |= self.fit_evidence()
                    self.save_checkpoint(metrics)
                else:
                    log("val has too few triples of training relations: the evidence weights are not fitted on it.")
            if len(self.graph.triples("test")) and "test" not in metrics:
                rules = self.config.training.evaluation_protocol
                self.encode_queries(self.graph.triples("test"))
                metrics = {**metrics, "test": self.ranked("test"), "protocol": rules.name}
                metrics["training_seconds"] = round(self.place.seconds, 1)
                self.save_checkpoint(metrics)
        self.fabric.barrier()
        return self.model.eval()

    def fit_evidence(self) -> dict[str, Any]:
        """Fit the evidence weights on val and return the metrics that change."""
        rules, scale = self.config.training.evaluation_protocol, float(self.objective.loss.log_scale.detach().exp())
        found = fit_evidence(self.model, self.graph, self.texts, rules, scale)
        log(
            f"evidence weights fitted on {found.fitted:,} val triples: "
            f"MRR on {found.held_out:,} others {found.before:.4f} → {found.after:.4f}"
        )
        return {"evidence": asdict(found), "val": self.ranked("val", self.config.training.validation_triples)}

    def log(self, **values: float) -> None:
        """Add a row to log.csv and to the logger."""
        if self.first:
            place = self.place
            row = {"step": place.step, "epoch": place.epoch, "seconds": round(place.seconds, 2), **values}
            place.log.append(row)
            self.log_file.append(row)
            self.fabric.log_dict(values, step=place.step)

    def save_checkpoint(self, metrics: dict[str, Any]) -> None:
        """Replace the run's checkpoint by the current weights."""
        save_pretrained(self.model, self.run / CHECKPOINT, metrics, owned=True)

    def save(self) -> None:
        """Write a restart point."""
        if self.first:
            restart.save(self.run, self.objective, self.optimiser, self.place, self.cached_by)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT or SIGTERM arrived; a second signal stops the run immediately."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        log("Stopping after this step …")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_logger(name: str, run: Path) -> Any:
    """Return a Lightning logger, used in addition to log.csv."""
    if name == "none":
        return []
    try:
        if name == "tensorboard":
            from lightning.fabric.loggers.tensorboard import TensorBoardLogger

            return TensorBoardLogger(run, name="tensorboard", version="")
        from lightning.pytorch import loggers

        if name == "wandb":
            return loggers.WandbLogger(project="fnftg", name=run.name, save_dir=run)
        return loggers.MLFlowLogger(experiment_name="fnftg", run_name=run.name)
    except ImportError as error:
        raise FnftgError(f"The logger {name} is not installed: pip install {name}.") from error


def make_fabric(config: TrainerConfig, logger: Any) -> Any:
    """Return a launched Lightning Fabric for the config's hardware."""
    from lightning.fabric import Fabric

    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"
    processes = config.devices * config.num_nodes
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=config.devices,
        num_nodes=config.num_nodes,
        precision=precision,
        strategy="ddp" if processes > 1 else "auto",
        loggers=logger,
    )
    fabric.launch()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    return fabric
