"""PyKEEN's ComplEx and RotatE as finders of missing links, for `discovery.py`.

ComplEx is trained with the cross-entropy of a triple among sampled negatives, RotatE with self-adversarial negative
sampling (Sun et al., 2019). `mrr` ranks held-out triples with PyKEEN's own evaluator, which shows what a model has
learned independently of the lists made here.
"""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.console import log
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.predict.completion import FOUND, Found, best_first
from fnftg.predict.discovery import packed

DIMENSION = 64
PAIRS = 65_536  # of a head and a tail per block, which fit into the processor's cache
SAMPLE = 500  # triples that PyKEEN's evaluator ranks


@dataclass(frozen=True)
class Peer:
    """How one of PyKEEN's models is trained."""

    batch_size: int
    learning_rate: float
    negatives: int  # per triple
    margin: float = 0.0


PEERS = {
    "ComplEx": Peer(batch_size=1024, learning_rate=0.1, negatives=64),
    "RotatE": Peer(batch_size=1024, learning_rate=0.005, negatives=64, margin=6.0),
}


def trained(graph: KnowledgeGraph, name: str, minutes: float, cache: Path | None) -> Any:
    """Train one of PyKEEN's models for some minutes of CPU time, or load it from the cache."""
    from pykeen.losses import InfoNCELoss, NSSALoss
    from pykeen.models import ComplEx, RotatE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import TriplesFactory
    from safetensors.torch import load_file, save_file

    warnings.filterwarnings("ignore", module="pykeen|torch|class_resolver")
    logging.getLogger("pykeen").setLevel(logging.ERROR)
    peer = PEERS[name]
    triples = torch.from_numpy(graph.all_triples().astype(np.int64))
    entities, relations = ({str(row): row for row in range(len(part))} for part in (graph.entities, graph.relations))
    factory = TriplesFactory(triples, entities, relations)
    common: dict[str, Any] = {"triples_factory": factory, "embedding_dim": DIMENSION, "random_seed": 0}
    torch.manual_seed(0)
    if name == "ComplEx":
        model: Any = ComplEx(
            **common,
            loss=InfoNCELoss(margin=0.0, log_adversarial_temperature=0.0),
            entity_initializer="xavier_uniform",
            relation_initializer="xavier_uniform",
            regularizer=None,
        )
    else:
        model = RotatE(**common, loss=NSSALoss(margin=peer.margin, adversarial_temperature=1.0))
    file = None if cache is None else cache / f"{name}.safetensors"
    if file is not None and file.is_file():
        model.load_state_dict({key: from_real(value) for key, value in load_file(file).items()})
        return model.eval()
    optimizer = {"ComplEx": torch.optim.Adagrad, "RotatE": torch.optim.Adam}[name]
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=optimizer(model.parameters(), lr=peer.learning_rate),
        negative_sampler_kwargs={"num_negs_per_pos": peer.negatives},
    )
    started, epoch = time.process_time(), 0  # CPU time: other work on the machine does not shorten the training
    while time.process_time() - started < 60 * minutes:
        epoch += 1
        loop.train(
            factory,
            num_epochs=epoch,
            continue_training=epoch > 1,  # or else PyKEEN would reset the weights
            batch_size=peer.batch_size,
            use_tqdm=False,
            num_workers=0,
        )
        seconds = time.process_time() - started
        log(f"{name}: epoch {epoch}, loss {loop.losses_per_epochs[-1]:.3f}, {seconds:.0f} s of CPU time")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: to_real(value) for key, value in model.state_dict().items()}, file)
    return model.eval()


def to_real(values: torch.Tensor) -> torch.Tensor:
    """Return complex values with a last axis (real, imaginary), which safetensors can store."""
    return (torch.view_as_real(values) if values.is_complex() else values).contiguous()


def from_real(values: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(values) if values.ndim == 3 and values.shape[-1] == 2 else values


def mrr(model: Any, graph: KnowledgeGraph, held_out: Triples) -> float:
    """Return the filtered MRR of a sample of held-out triples, by PyKEEN's evaluator."""
    from pykeen.evaluation import RankBasedEvaluator

    rows = np.random.default_rng(0).permutation(len(held_out))[:SAMPLE]
    ranked, known = (torch.from_numpy(part.astype(np.int64)) for part in (held_out[rows], graph.all_triples()))
    others = torch.from_numpy(held_out.astype(np.int64))
    result = RankBasedEvaluator().evaluate(
        model, ranked, additional_filter_triples=[known, others], batch_size=32, use_tqdm=False
    )
    return float(result.get_metric("both.realistic.inverse_harmonic_mean_rank"))


@torch.inference_mode()
def likeliest(graph: KnowledgeGraph, model: Any, most: int) -> Found:
    """Return the triples with the highest scores among the heads and tails that each relation has."""
    triples = graph.all_triples()
    known, best = packed(graph, *triples.T), np.empty(0, FOUND)
    for relation in np.unique(triples[:, 1]).tolist():
        own = triples[triples[:, 1] == relation]
        heads, tails = np.unique(own[:, 0]), np.unique(own[:, 2])
        step = max(PAIRS // len(tails), 1)
        for start in range(0, len(heads), step):
            some = heads[start : start + step]
            queries = torch.from_numpy(np.stack([some, np.full_like(some, relation)], axis=1).astype(np.int64))
            scores = model.score_t(queries, tails=torch.from_numpy(tails.astype(np.int64))).numpy()  # (b, tails)
            floor = best["score"].min() if len(best) >= most else -np.inf
            place, which = np.nonzero(scores > floor)
            part = np.empty(len(place), FOUND)
            part["head"], part["relation"], part["tail"] = some[place], relation, tails[which]
            part["score"] = part["probability"] = scores[place, which]
            new = ~np.isin(packed(graph, part["head"], part["relation"], part["tail"]), known)
            best = np.concatenate([best, part[new & (part["head"] != part["tail"])]])
            if len(best) > 4 * most:
                best = best[np.argsort(-best["score"], kind="stable")[:most]]
    return best_first(best, len(graph.entities), len(graph.relations))
