"""Word vectors, e.g. GloVe, as text encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fnftg.arrays import Float32Array
from fnftg.errors import FnftgError
from fnftg.text.packaged_weights import GLOVE_WEIGHTS, packaged_folder
from fnftg.text.word_vectors import LONGEST, WordVectors

PADDING, UNKNOWN = "[PAD]", "[UNK]"


def load_words(name: str) -> tuple[WordVectors, Any]:
    """Load `glove` (packaged) or `glove:FILE`, a file with a word and its vector on each line.

    [PAD] is zero, and [UNK] is the mean of all words.
    """
    _, _, file = name.partition(":")
    words, vectors = _from_file(Path(file).expanduser()) if file else _packaged()
    model = WordVectors(len(words) + 2, vectors.shape[1])
    special = np.stack([np.zeros(vectors.shape[1], np.float32), vectors.mean(0)])
    model.embeddings.weight.data = torch.from_numpy(np.concatenate([special, vectors]))
    return model.eval().requires_grad_(False), _tokenizer([PADDING, UNKNOWN, *words])


def _packaged() -> tuple[list[str], Float32Array]:
    import polars

    folder = packaged_folder(GLOVE_WEIGHTS)
    words = polars.read_parquet(folder / "glove_6B_index.parquet")["index"].to_list()
    return words, np.load(folder / "glove_6B_50d_emb.npy", allow_pickle=False)


def _from_file(path: Path) -> tuple[list[str], Float32Array]:
    """Read a file in GloVe's format. A first line with two numbers, as in word2vec's format, is skipped."""
    words: dict[str, Float32Array] = {}
    width = 0
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                word, *numbers = line.rstrip().split(" ")
                if number == 1 and len(numbers) == 1:
                    continue
                width = width or len(numbers)
                vector = np.array(numbers, np.float32)
                if not word or len(vector) != width or not np.isfinite(vector).all():
                    raise ValueError
                words.setdefault(word.lower(), vector)
    except OSError as error:
        raise FnftgError(f"The word vectors {path} cannot be read: check the path.") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise FnftgError(f"{path}, line {number}: not a word and {width or 'its'} numbers; fix the line.") from error
    if not words:
        raise FnftgError(f"The file {path} contains no word vectors: each line must have a word and its numbers.")
    for special in (PADDING, UNKNOWN):
        words.pop(special.lower(), None)
    return list(words), np.stack(list(words.values()))


def _tokenizer(vocabulary: list[str]) -> Any:
    """Return a tokenizer of lower-case words, with the normalisation of BERT."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    numbered = {word: number for number, word in enumerate(vocabulary)}
    tokenizer: Any = Tokenizer(models.WordLevel(numbered, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    kind: Any = transformers.PreTrainedTokenizerFast
    return kind(tokenizer_object=tokenizer, pad_token=PADDING, unk_token=UNKNOWN, model_max_length=LONGEST)
