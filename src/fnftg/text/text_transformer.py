"""The Text Transformer (TT): x_TT = σ(pool(BERT(x)) W0) W1 with SiLU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fnftg.arrays import Int64Array
from fnftg.errors import FnftgError
from fnftg.kernels.dropout import dropout
from fnftg.kg.graph import KnowledgeGraph, Vocabulary, short_names
from fnftg.text import nearest_texts
from fnftg.text.encoder import Encoder, Pooling, pooled
from fnftg.text.encoders import TextConfig
from fnftg.text.features import FeatureStore
from fnftg.text.mentions import Mentions
from fnftg.text.nearest_texts import TextKNN
from fnftg.text.same_names import SameNames
from fnftg.text.tokens import TokenStore, fitting_budget, packs


@dataclass
class GraphTexts:
    """The texts of a graph as input of the Text Transformer. Entity e is row e, relation label l is row N + l."""

    tokens: TokenStore
    features: FeatureStore | None  # cached outputs of the encoder
    entities: int  # N
    relations: int  # R
    base: GraphTexts | None = None  # of a view: the texts of the graph that it extends
    knn: dict[int, TextKNN] = field(default_factory=dict, repr=False)  # by k
    cache: Path | None = None  # the folder of precomputed nearest texts
    vocabulary: Vocabulary | None = field(default=None, repr=False)  # of the entities, for mentions of their names
    relation_vocabulary: Vocabulary | None = field(default=None, repr=False)
    found_mentions: dict[int, Mentions] = field(default_factory=dict, repr=False)  # by number of words

    @classmethod
    def of(cls, graph: KnowledgeGraph, encoder: Encoder, config: TextConfig, cache: Path | None = None) -> GraphTexts:
        """Tokenise the texts and, for a frozen encoder, compute their features, or load both from the cache."""
        tokens = TokenStore.of(graph, encoder, config.words, cache)
        features = None
        if config.training == "frozen":
            pooling, budget = pooling_of(config, encoder), config.token_budget
            features = FeatureStore.of(encoder, tokens, pooling, cache, budget, config.precision)
        return cls(
            tokens,
            features,
            len(graph.entities),
            len(graph.relations),
            vocabulary=graph.entities,
            relation_vocabulary=graph.relations,
            cache=cache,
        )

    def extended(self, view: KnowledgeGraph, encoder: Encoder) -> GraphTexts:
        """Return the texts of a view of the graph. Only the texts that it adds are tokenised and encoded."""
        tokens = self.tokens.extended(view, encoder)
        features = None if self.features is None else self.features.extended(tokens)
        return GraphTexts(
            tokens,
            features,
            len(view.entities),
            len(view.relations),
            self,
            vocabulary=view.entities,
            relation_vocabulary=view.relations,
        )

    def nearest_texts(self, k: int) -> TextKNN:
        """Return the index of the k nearest texts of each entity, by the features of a frozen encoder."""
        larger = [knn for other, knn in self.knn.items() if other > k and knn.precomputed is not None]
        if k not in self.knn and larger:
            self.knn[k] = larger[0].truncated(k)
        if k not in self.knn:
            if self.features is None:
                raise FnftgError("Nearest texts require the features of a frozen encoder: set text.training to frozen.")
            self.knn[k] = self._nearest_texts(self.features, k)
        return self.knn[k]

    def _nearest_texts(self, features: FeatureStore, k: int) -> TextKNN:
        if self.base is not None:
            return self.base.nearest_texts(k).extended(features.take(np.arange(self.base.entities, self.entities)))
        if self.knn:
            return replace(next(iter(self.knn.values())), k=k, precomputed=None)
        if self.entities > nearest_texts.EXACT:
            return TextKNN.of_many(features, self.entities, k, self.cache)
        return TextKNN.of(features.take(np.arange(self.entities)), k)

    def precompute_nearest_texts(self, k: int) -> None:
        """Compute the nearest texts of all entities, which is faster if most of them are needed."""
        self.knn[k] = self.nearest_texts(k).precomputed_for_all(self.cache)

    def load_nearest_texts(self, k: int) -> None:
        """Load the nearest texts of all entities if they are in the cache."""
        if self.cache is not None:
            self.knn[k] = self.nearest_texts(k).loaded(self.cache)

    def mentions(self, words: int | None) -> Mentions:
        """Return the mentions of entities in the first words of texts: 0 for whole texts, None for what is encoded."""
        words = self.tokens.words if words is None else words
        if words not in self.found_mentions:
            assert self.vocabulary is not None
            if self.base is None:
                self.found_mentions[words] = Mentions.of(self.vocabulary, words)
            else:
                rows = self.base.entities, self.entities
                new = self.vocabulary.texts.slice(*rows), short_names(self.vocabulary, *rows)
                self.found_mentions[words] = self.base.mentions(words).extended(*new)
        return self.found_mentions[words]

    @cached_property
    def same_names(self) -> SameNames:
        """The entities with the same name."""
        assert self.vocabulary is not None
        first = 0 if self.base is None else self.base.entities
        names = short_names(self.vocabulary, first, self.entities)
        return SameNames.of(names) if self.base is None else self.base.same_names.extended(names)

    def relation_row(self, label: torch.Tensor) -> torch.Tensor:
        """Return the row of a relation label in [0, 2R)."""
        return label + self.entities


def pooling_of(config: TextConfig, encoder: Encoder) -> Pooling:
    return encoder.pooling if config.pooling == "auto" else config.pooling


class TextEncoder(nn.Module):
    """The pooled outputs of an encoder for texts and query texts. A frozen encoder is not part of the parameters."""

    anchor: torch.Tensor

    def __init__(self, config: TextConfig, encoder: Encoder):
        super().__init__()
        self.config = config
        self.pooling: Pooling = pooling_of(config, encoder)
        self.width = encoder.hidden
        self.register_buffer("anchor", torch.zeros(0), persistent=False)  # has the module's device
        self._encoder = [encoder]  # in a list, so that nn.Module does not register its parameters
        if config.training == "frozen":
            encoder.freeze()
        else:
            self.bert = encoder.model.requires_grad_(True)
            if config.dropout is not None:
                _set_dropout(encoder.model, config.dropout)

    @property
    def encoder(self) -> Encoder:
        return self._encoder[0]

    def forward(
        self,
        texts: GraphTexts,
        rows: torch.Tensor,
        second_rows: torch.Tensor | None = None,
        cached: bool = False,
    ) -> torch.Tensor:
        """Return the vectors of texts, or of query texts [row‖second row], (n, d).

        With `cached`, the features that `refresh` computed are used, without gradients. This has no effect while the
        encoder is fine-tuned in full.
        """
        return self.projected(self.features(texts, rows, second_rows, cached))

    def projected(self, x: torch.Tensor) -> torch.Tensor:
        """Project the encoder's outputs (n, hidden). The base class returns them unchanged."""
        return x

    def features(
        self, texts: GraphTexts, rows: torch.Tensor, second_rows: torch.Tensor | None = None, cached: bool = False
    ) -> torch.Tensor:
        """Return the pooled outputs of the encoder, (n, hidden)."""
        if self.config.training == "frozen" or (cached and self._may_use(texts)):
            if texts.features is None:
                raise FnftgError("The features of the texts have not been computed: call refresh first.")
            found = texts.features.take(_rows(rows), None if second_rows is None else _rows(second_rows))
            features = torch.from_numpy(found).to(self.anchor.device)
            if self.config.training == "frozen" and self.config.dropout:
                features = dropout(features, self.config.dropout, self.training)
            return features
        return self._encode(texts.tokens, rows, second_rows)

    def _may_use(self, texts: GraphTexts) -> bool:
        if self.config.training == "finetune-centre":
            return True
        return not self.training and texts.features is not None

    def _encode(self, tokens: TokenStore, rows: torch.Tensor, second_rows: torch.Tensor | None) -> torch.Tensor:
        """Encode each distinct text once, in batches of similar lengths, and gather the outputs."""
        if second_rows is None:
            distinct, inverse = torch.unique(rows, return_inverse=True)
            first, second = _rows(distinct), None
        else:
            distinct, inverse = torch.unique(rows * len(tokens) + second_rows, return_inverse=True)
            keys = _rows(distinct)
            first, second = keys // len(tokens), keys % len(tokens)
        device = self.anchor.device
        if not len(first):
            return torch.zeros((0, self.encoder.hidden), device=device)
        encoded, places = [], []
        for pack in packs(tokens.lengths(first, second), self.config.token_budget or fitting_budget(device)):
            ids, mask, types = tokens.batch(first[pack], None if second is None else second[pack])
            batch = ids.to(device), mask.to(device), None if types is None else types.to(device)
            encoded.append(pooled(self.encoder.model, batch, self.pooling))
            places.append(pack)
        place = torch.from_numpy(np.argsort(np.concatenate(places))).to(device)  # of each distinct text in `encoded`
        return torch.cat(encoded).index_select(0, place[inverse.to(device)])

    def refresh(self, texts: GraphTexts) -> None:
        """Recompute the cached features of all texts with the encoder's current weights."""
        texts.features = FeatureStore.of(self.encoder, texts.tokens, self.pooling, None, self.config.token_budget)


class TextProjection(TextEncoder):
    """pool(BERT(x)) W, as in BLP: one linear layer without bias."""

    def __init__(self, config: TextConfig, encoder: Encoder, width: int | None = None):
        super().__init__(config, encoder)
        self.width = width or config.width or encoder.hidden
        self.w = nn.Linear(encoder.hidden, self.width, bias=False)

    def projected(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.w(x)
        return out  # (n, d)


class TextTransformer(TextEncoder):
    """The paper's TT: σ(pool(BERT(x)) W0) W1."""

    def __init__(self, config: TextConfig, encoder: Encoder):
        super().__init__(config, encoder)
        self.width = config.width or encoder.hidden
        self.w0 = nn.Linear(encoder.hidden, self.width, bias=False)
        self.w1 = nn.Linear(self.width, self.width, bias=False)

    def projected(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.w1(functional.silu(self.w0(x)))
        return out  # (n, d)


def _rows(tensor: torch.Tensor) -> Int64Array:
    return tensor.detach().cpu().numpy().astype(np.int64, copy=False)


def _set_dropout(model: nn.Module, share: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
