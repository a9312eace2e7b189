"""An untrained encoder: a BERT with random weights and a vocabulary built from the graph's texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY, ALPHABET, LONGEST, SEED = 30_522, 1_000, 512, 0  # the first and the third as in BERT


def random_bert(layers: int, hidden: int, heads: int, vocabulary: int, seed: int = SEED) -> Any:
    """Return a BERT with random weights, which the seed determines."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=LONGEST,
    )
    model_class: Any = transformers.BertModel
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(config, add_pooling_layer=False)


def wordpiece(texts: Iterable[str]) -> Any:
    """Train a lower-casing WordPiece tokenizer. The result is deterministic.

    The library numbers the characters inside words in the order of a hash table, which differs between processes, and
    breaks ties by number. Passing the characters as special tokens fixes their order, and so the result.
    """
    import transformers
    from tokenizers import normalizers, trainers

    texts = list(texts) if isinstance(texts, Iterator) else texts  # iterated twice
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    ranked = sorted((-count, character) for character, count in counts.items() if not character.isspace())
    alphabet = sorted(character for _, character in ranked[:ALPHABET])
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *(f"##{character}" for character in alphabet)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    trained = _bert_tokenizer({})
    trained.train_from_iterator(texts, trainer)
    bert_tokenizer_class: Any = getattr(transformers, "BertTokenizerFast")  # noqa: B009, its types do not know it
    return bert_tokenizer_class(tokenizer_object=_bert_tokenizer(trained.get_vocab()), model_max_length=LONGEST)


def _bert_tokenizer(vocabulary: dict[str, int]) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer: Any = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if vocabulary:
        ends = ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
        tokenizer.post_processor = processors.BertProcessing(*ends)
    return tokenizer
