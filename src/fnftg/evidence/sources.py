"""Registry of the evidence sources."""

from __future__ import annotations

from fnftg.errors import FnftgError
from fnftg.evidence.base import EvidenceSource
from fnftg.evidence.evidence_config import EvidenceConfig
from fnftg.evidence.few_shot_prior import FewShotPrior
from fnftg.evidence.mention_prior import MentionEvidence
from fnftg.evidence.relation_cooccurrence import RelationCooccurrence
from fnftg.evidence.relation_text import RelationText
from fnftg.evidence.text_knn import TextKNNEvidence

SOURCES: dict[str, type[EvidenceSource]] = {
    source.name: source
    for source in (TextKNNEvidence, RelationCooccurrence, MentionEvidence, FewShotPrior, RelationText)
}


def make_sources(config: EvidenceConfig) -> list[EvidenceSource]:
    """Create the sources that a config names, in the order of `SOURCES`.

    Raises:
        FnftgError: if a name is not in `SOURCES`.
    """
    unknown = [name for name in config.sources if name not in SOURCES]
    if unknown:
        raise FnftgError(f"There is no evidence source {unknown[0]!r}: choose from {', '.join(SOURCES)}.")
    return [source(config) for name, source in SOURCES.items() if name in config.sources]


def check_requirements(config: EvidenceConfig, frozen_text: bool, both_directions: bool) -> None:
    """Raise FnftgError if a source needs a frozen encoder, or edges of both directions, that the model lacks."""
    for source in make_sources(config):
        if "frozen text" in source.requires and not frozen_text:
            raise FnftgError(f"The evidence source {source.name} needs a frozen encoder: set text.training to frozen.")
        if "both directions" in source.requires and not both_directions:
            raise FnftgError(
                f"The evidence source {source.name} needs edges of both directions: set ego.directions to both."
            )
