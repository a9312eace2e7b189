"""KEPLER (Wang et al., 2021): one encoder trained on link prediction and masked language modelling together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError
from fnftg.models.link_predictor import ScoredBatch
from fnftg.models.losses import RankingLoss
from fnftg.models.relations import RelationsFrom
from fnftg.models.text_only import TextOnly, check_choices
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig
from fnftg.text.text_transformer import GraphTexts, TextEncoder
from fnftg.text.tokens import fitting_budget, packs

KEPT, RANDOM = 0.1, 0.1  # shares of the chosen words that are kept, and replaced by a random word; the rest is masked


@dataclass(frozen=True)
class KEPLERConfig:
    """KEPLER: TransE over the encoder's outputs, plus a masked-language-model loss on the same descriptions.

    The published system uses training.loss.name nll with margin 4.

    Args:
        text: the encoder; text.training must be finetune; text.width and text.query are not used.
        relations: table learns one vector per relation of the training graph; text encodes the relation's text.
        masked_weight: weight of the masked-language-model loss.
        masked_share: share of the words of a description that are masked, between 0 and 1.
    """

    text: TextConfig = field(default_factory=lambda: TextConfig(training="finetune"))
    relations: RelationsFrom = "table"
    masked_weight: float = 1.0
    masked_share: float = 0.15

    def __post_init__(self) -> None:
        check_choices("transe", self.relations)
        if self.text.training != "finetune":
            raise FnftgError("KEPLER trains its encoder: set text.training to finetune, or use the system blp.")
        if self.text.width is not None:
            raise FnftgError("KEPLER uses the encoder's hidden size: leave out text.width, or use the system blp.")
        if self.masked_weight < 0 or not 0 < self.masked_share < 1:
            raise FnftgError("KEPLER needs model.masked_weight ≥ 0 and model.masked_share between 0 and 1.")


class KEPLER(TextOnly):
    """The KEPLER model."""

    system = "kepler"

    def __init__(self, config: KEPLERConfig, encoder: Encoder, relations: int):
        super().__init__(encoder.hidden, relations, config.relations, "transe", False)
        self.config, self.tt = config, TextEncoder(config.text, encoder)
        if encoder.tokenizer.mask_token_id is None:
            raise FnftgError(f"The encoder {encoder.name} has no mask token: choose another encoder for KEPLER.")
        self.words = MaskedWords(encoder, config.masked_share)

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        encoded: Tensor = self.tt(texts, rows)
        return encoded

    def loss(self, compared: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """Return the ranking loss plus the weighted masked-language-model loss on the batch's descriptions."""
        masked = self.words(compared.texts, compared.centres, self.tt.config.token_budget)
        both: Tensor = super().loss(compared, ranking) + self.config.masked_weight * masked
        return both


class MaskedWords(nn.Module):
    """BERT's masked-language-model head, with the encoder's input embeddings as output weights."""

    def __init__(self, encoder: Encoder, share: float):
        super().__init__()
        self.share, self._encoder = share, [encoder]  # in a list, so that its parameters are not registered twice
        self.dense = nn.Linear(encoder.hidden, encoder.hidden)
        self.norm = nn.LayerNorm(encoder.hidden)
        vocabulary = encoder.model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, texts: GraphTexts, entities: Int32Array, token_budget: int | None = None) -> Tensor:
        """Return the mean cross-entropy of the chosen words in the descriptions of the distinct entities."""
        model, device = self._encoder[0].model, self.bias.device
        numbers = np.unique(entities).astype(np.int64)
        losses, chosen = [], 0
        for pack in packs(texts.tokens.lengths(numbers), token_budget or fitting_budget(device)):
            ids, mask, types = texts.tokens.batch(numbers[pack])
            wanted = self.choose(ids)  # (n, length)
            given, mask = self.corrupted(ids, wanted).to(device), mask.to(device)
            typed = {} if types is None else {"token_type_ids": types.to(device)}
            states = model(input_ids=given, attention_mask=mask, **typed).last_hidden_state
            place = wanted.flatten().nonzero().squeeze(1).to(device)
            logits = self.logits(states.flatten(0, 1)[place])
            losses.append(functional.cross_entropy(logits, ids[wanted].to(device), reduction="sum"))
            chosen += int(wanted.sum())
        return torch.stack(losses).sum() / max(chosen, 1)

    def logits(self, states: Tensor) -> Tensor:
        """Map hidden states (words, hidden) to logits (words, vocabulary)."""
        table: Tensor = self._encoder[0].model.get_input_embeddings().weight  # type: ignore[operator]
        return self.norm(functional.gelu(self.dense(states))) @ table.T + self.bias  # type: ignore[no-any-return]

    def choose(self, ids: Tensor) -> Tensor:
        """Choose the words to predict at random, without special tokens."""
        special = torch.tensor(self._encoder[0].tokenizer.all_special_ids)
        return (torch.rand(ids.shape) < self.share) & ~torch.isin(ids, special)

    def corrupted(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Return the encoder's input: the chosen words masked, replaced at random or kept."""
        tokenizer = self._encoder[0].tokenizer
        lot = torch.rand(ids.shape)
        given = ids.masked_fill(wanted & (lot >= KEPT + RANDOM), int(tokenizer.mask_token_id))
        anything = torch.randint(len(tokenizer), ids.shape)
        return torch.where(wanted & (lot < RANDOM), anything, given)
