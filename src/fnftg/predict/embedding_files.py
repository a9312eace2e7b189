"""Writers of entity embeddings, in formats that other tools read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fnftg.arrays import Float32Array
from fnftg.errors import FnftgError
from fnftg.files import new_file, new_folder
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.strings import Strings

BLOCK = 20_000  # entities converted to text at a time
VECTORS, METADATA = "vectors.tsv", "metadata.tsv"


def write_embeddings(graph: KnowledgeGraph, table: Float32Array, path: Path, force: bool = False) -> None:
    """Write ids and embeddings (N, d) in the format given by the file extension."""
    write = FORMATS.get(path.suffix.lower())
    if write is None:
        raise FnftgError(f"{path} has an unknown format: use one of the extensions {', '.join(FORMATS)}.")
    with new_file(path, force) as partial:
        write(graph, table, partial)


def write_projector(graph: KnowledgeGraph, table: Float32Array, folder: Path, force: bool = False) -> None:
    """Write the two files that TensorBoard's projector loads: the vectors, and the ids and names with a header."""
    with new_folder(folder, "projector", force) as partial:
        with open(partial / VECTORS, "wb") as file:
            for _, _, vectors in _blocks(graph, table):
                _numbers(vectors).write_csv(file, separator="\t", include_header=False)
        with open(partial / METADATA, "w", encoding="utf-8") as lines:
            lines.write("id\tname\n")
            for ids, names, _ in _blocks(graph, table):
                lines.writelines(f"{id_}\t{name}\n" for id_, name in zip(ids, names, strict=True))


def _safetensors(graph: KnowledgeGraph, table: Float32Array, path: Path) -> None:
    """Write vectors (N, d), ids as bytes with one id per line, and the start of each line (N + 1,)."""
    from safetensors.numpy import save_file

    ids = Strings.of(graph.entities.ids.slice(0, len(graph.entities)))
    save_file({"vectors": np.ascontiguousarray(table), "ids": np.array(ids.lines), "id_offsets": ids.offsets}, path)


def _npz(graph: KnowledgeGraph, table: Float32Array, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, ids=np.array(graph.entities.ids.slice(0, len(graph.entities)), np.str_), vectors=table)


def _parquet(graph: KnowledgeGraph, table: Float32Array, path: Path) -> None:
    """Write the columns id, name and vector (a list of fixed length)."""
    schema: dict[str, Any] = {"id": pl.String, "name": pl.String, "vector": pl.Array(pl.Float32, table.shape[1])}
    frames = [
        pl.DataFrame({"id": ids, "name": names, "vector": np.array(vectors)}, schema)
        for ids, names, vectors in _blocks(graph, table)
    ]
    (pl.concat(frames) if frames else pl.DataFrame(schema=schema)).write_parquet(path)


def _tsv(graph: KnowledgeGraph, table: Float32Array, path: Path) -> None:
    """Write the id and the vector on each line, without a header."""
    with open(path, "wb") as file:
        for ids, _, vectors in _blocks(graph, table):
            rows = pl.concat([pl.DataFrame({"id": ids}), _numbers(vectors)], how="horizontal")
            rows.write_csv(file, separator="\t", include_header=False, quote_style="never")


def _word2vec(graph: KnowledgeGraph, table: Float32Array, path: Path) -> None:
    """Write a line with both sizes, then ids and vectors separated by blanks; blanks in ids become underscores."""
    with open(path, "wb") as file:
        file.write(f"{len(table)} {table.shape[1]}\n".encode())
        for ids, _, vectors in _blocks(graph, table):
            words = pl.DataFrame({"id": ["_".join(id_.split()) for id_ in ids]})
            rows = pl.concat([words, _numbers(vectors)], how="horizontal")
            rows.write_csv(file, separator=" ", include_header=False, quote_style="never")


FORMATS: dict[str, Callable[[KnowledgeGraph, Float32Array, Path], None]] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".parquet": _parquet,
    ".tsv": _tsv,
    ".w2v": _word2vec,
    ".txt": _word2vec,
}


def _blocks(graph: KnowledgeGraph, table: Float32Array) -> Iterator[tuple[list[str], list[str], Float32Array]]:
    for start in range(0, len(table), BLOCK):
        stop = min(start + BLOCK, len(table))
        names = [graph.entities.name(row) for row in range(start, stop)]
        yield graph.entities.ids.slice(start, stop), names, table[start:stop]


def _numbers(vectors: Any) -> pl.DataFrame:
    return pl.DataFrame(np.array(vectors, np.float32), [f"v{column}" for column in range(vectors.shape[1])])
