"""KEPLER (Wang et al., 2021): one encoder learns to predict links and to fill in masked words, together."""

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
from fnftg.text.encoders import Encoder, TextConfig
from fnftg.text.text_transformer import GraphTexts, TextEncoder
from fnftg.text.tokens import fitting_budget, packs

KEPT, RANDOM = 0.1, 0.1  # of the words chosen these shares stay as they are, or become any word; the rest is masked


@dataclass(frozen=True)
class KEPLERConfig:
    """KEPLER: TransE over the encoder's own outputs, and the masked-language-model loss on the same descriptions.

    Published with the loss nll of margin 4.

    Args:
        text: the encoder, which is trained: training finetune; text.width and text.query are not used.
        relations: table, one learned vector for each relation of the training graph, or text, from their descriptions.
        masked_weight: of the masked-language-model loss.
        masked_share: of the words of a description.
    """

    text: TextConfig = field(default_factory=lambda: TextConfig(training="finetune"))
    relations: RelationsFrom = "table"
    masked_weight: float = 1.0
    masked_share: float = 0.15

    def __post_init__(self) -> None:
        check_choices("transe", self.relations)
        if self.text.training != "finetune":
            raise FnftgError("KEPLER trains its encoder on masked words: set text.training finetune, or choose blp.")
        if self.text.width is not None:
            raise FnftgError("KEPLER's vectors have the width of its encoder: leave text.width out, or choose blp.")
        if self.masked_weight < 0 or not 0 < self.masked_share < 1:
            raise FnftgError("KEPLER needs masked_weight ≥ 0 and masked_share between 0 and 1.")


class KEPLER(TextOnly):
    system = "kepler"

    def __init__(self, config: KEPLERConfig, encoder: Encoder, relations: int):
        super().__init__(encoder.hidden, relations, config.relations, "transe", False)
        self.config, self.tt = config, TextEncoder(config.text, encoder)
        if encoder.tokenizer.mask_token_id is None:
            raise FnftgError(f"The encoder {encoder.name} has no token for masked words: KEPLER needs another encoder.")
        self.words = MaskedWords(encoder, config.masked_share)

    def encode(self, texts: GraphTexts, rows: Tensor) -> Tensor:
        encoded: Tensor = self.tt(texts, rows)
        return encoded

    def loss(self, compared: ScoredBatch, ranking: RankingLoss) -> Tensor:
        """The knowledge-embedding loss plus the masked-language-model loss on the batch's descriptions."""
        masked = self.words(compared.texts, compared.centres, self.tt.config.token_budget)
        both: Tensor = super().loss(compared, ranking) + self.config.masked_weight * masked
        return both


class MaskedWords(nn.Module):
    """BERT's head: words in their context → the words that were there, by the encoder's own word embeddings."""

    def __init__(self, encoder: Encoder, share: float):
        super().__init__()
        self.share, self._encoder = share, [encoder]  # whose parameters are the system's already
        self.dense = nn.Linear(encoder.hidden, encoder.hidden)
        self.norm = nn.LayerNorm(encoder.hidden)
        vocabulary = encoder.model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, texts: GraphTexts, entities: Int32Array, token_budget: int | None = None) -> Tensor:
        """The mean cross-entropy of the chosen words of these entities' descriptions, each description once."""
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
        """(words, hidden) → (words, vocabulary)"""
        table: Tensor = self._encoder[0].model.get_input_embeddings().weight  # type: ignore[operator]
        return self.norm(functional.gelu(self.dense(states))) @ table.T + self.bias  # type: ignore[no-any-return]

    def choose(self, ids: Tensor) -> Tensor:
        """Which words are to be filled in: none of the special tokens."""
        special = torch.tensor(self._encoder[0].tokenizer.all_special_ids)
        return (torch.rand(ids.shape) < self.share) & ~torch.isin(ids, special)

    def corrupted(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """The words as the encoder sees them: of the chosen ones most are masked."""
        tokenizer = self._encoder[0].tokenizer
        lot = torch.rand(ids.shape)
        given = ids.masked_fill(wanted & (lot >= KEPT + RANDOM), int(tokenizer.mask_token_id))
        anything = torch.randint(len(tokenizer), ids.shape)
        return torch.where(wanted & (lot < RANDOM), anything, given)
