"""`fnftg embed`: export the entity embeddings."""

from __future__ import annotations

import argparse
from pathlib import Path

from fnftg.console import log, print_json
from fnftg.kg.commands.shared_arguments import add_json, add_output, examples
from fnftg.predict.commands.arguments import add_run


def embed(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg embed animals-run -o animals.parquet",
        "fnftg embed animals-run -o animals.safetensors",
        "fnftg embed animals-run -o animals.w2v",
        "fnftg embed animals-run -o projector --projector",
    )
    add_run(parser)
    add_output(
        parser, "FILE", "the file to write: .safetensors, .npz, .parquet, .tsv, .w2v or .txt (word2vec text format)"
    )
    parser.add_argument(
        "--projector", action="store_true", help="write a folder for TensorBoard's embedding projector instead"
    )
    add_json(parser)
    chosen = parser.parse_args(arguments)
    from fnftg.errors import FnftgError
    from fnftg.files import check_output_file
    from fnftg.predict.embedding_files import FORMATS, write_embeddings, write_projector
    from fnftg.predict.predictor import load

    path: Path = chosen.output
    if not chosen.projector and path.suffix.lower() not in FORMATS:
        raise FnftgError(f"{path} has an unknown format: use one of the extensions {', '.join(FORMATS)}.")
    if not chosen.projector:
        check_output_file(path, chosen.force, chosen.graph)
    predictor = load(chosen.run, chosen.graph)
    (write_projector if chosen.projector else write_embeddings)(predictor.graph, predictor.table, path, chosen.force)
    entities, width = predictor.table.shape
    if chosen.json:
        print_json({"output": str(path), "entities": entities, "width": width})
    else:
        log(f"Saved the embeddings of {entities:,} entities ({width} dimensions) to {path}.")
