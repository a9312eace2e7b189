"""Registry of the systems."""

from __future__ import annotations

from typing import Any, NamedTuple

from fnftg.errors import FnftgError
from fnftg.models.blp import BLP, BLPConfig
from fnftg.models.bow import BOW, BOWConfig
from fnftg.models.dkrl import DKRL, DKRLConfig
from fnftg.models.ensemble import Ensemble, EnsembleConfig
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.kepler import KEPLER, KEPLERConfig
from fnftg.models.link_predictor import LinkPredictor
from fnftg.models.simkgc import SimKGC, SimKGCConfig
from fnftg.models.star import StAR, StARConfig
from fnftg.models.statik import StATIK, StATIKConfig
from fnftg.text.encoder import Encoder

SystemConfig = FnFConfig | BOWConfig | DKRLConfig | BLPConfig | KEPLERConfig | StARConfig | StATIKConfig | SimKGCConfig


class System(NamedTuple):
    """A system: its classes and how to describe it."""

    title: str  # name in the paper's tables
    model: type[LinkPredictor]
    config: type[Any]
    description: str

    def make(self, config: Any, encoder: Encoder, relations: int) -> LinkPredictor:
        """Create an untrained model; `relations` is the number of relations of the training graph."""
        made: Any = self.model
        model: LinkPredictor = made(config, encoder, relations)
        return model


SYSTEMS: dict[str, System] = {
    "fnf": System("FnF-TG", FnF, FnFConfig, "the paper's model of texts and ego-graphs"),
    "ensemble": System("FnF-TG ensemble", Ensemble, EnsembleConfig, "the mean score of several FnF-TG models"),
    "bow": System("BOW", BOW, BOWConfig, "the mean of a description's word embeddings"),
    "dkrl": System("DKRL", DKRL, DKRLConfig, "a convolutional network over a description's words"),
    "blp": System("BLP", BLP, BLPConfig, "a linear projection of the encoded description"),
    "kepler": System("KEPLER", KEPLER, KEPLERConfig, "an encoder trained on links and on masked words"),
    "star": System("StAR", StAR, StARConfig, "a classifier of pairs of texts and their distance"),
    "statik": System("StATIK", StATIK, StATIKConfig, "the encoded text plus messages from cached neighbours"),
    "simkgc": System("SimKGC", SimKGC, SimKGCConfig, "two encoders trained contrastively with many negatives"),
}


def system(name: str) -> System:
    """Look up a system by name; raise FnftgError if there is none."""
    if name not in SYSTEMS:
        raise FnftgError(f"There is no system {name!r}: choose one of {', '.join(SYSTEMS)}.")
    return SYSTEMS[name]


def title(name: str, config: Any) -> str:
    """Return the name of a configured system in the paper's tables."""
    return "FnF-T" if isinstance(config, FnFConfig) and not config.ego_graphs else system(name).title
