"""`fnftg distill`: distil a small text encoder from a larger one."""

from __future__ import annotations

import argparse
from pathlib import Path

from fnftg.console import log, print_json, print_table
from fnftg.kg.commands.shared_arguments import GRAPH_HELP, add_json, add_output, examples


def distill(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg distill wordnet-animals -o distilled-tiny",
        "fnftg distill WN18RR_IND wordnet -o distilled-mini --size mini --epochs 2",
        "fnftg train WN18RR_IND -o wn18rr --config wn18rr-tiny --model.text.encoder distilled-tiny",
        "fnftg distill WN18RR_IND -o static-encoder --size static",
        "fnftg train WN18RR_IND -o fast --model.text.encoder static-encoder",
    )
    parser.add_argument("graphs", metavar="GRAPH", nargs="+", help=GRAPH_HELP)
    add_output(parser, "FOLDER", "the encoder folder to write")
    parser.add_argument(
        "--size",
        default="tiny",
        help="tiny, mini, small, medium or base, as of BERT; layers, width and heads as in L-2_H-128_A-2; or static, a "
        "table of token vectors, which is not trained (default: %(default)s)",
    )
    parser.add_argument(
        "--teacher", default="minilm", help="minilm, or the folder or hub name of a BERT (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=int, help="passes over the texts (default: 3, and more if there are few texts)"
    )
    parser.add_argument(
        "--words", type=int, default=24, help="number of words of each text that are read (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=73, help="random seed (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    import torch

    from fnftg.errors import FnftgError
    from fnftg.files import new_folder
    from fnftg.kg.datasets import data_home
    from fnftg.kg.graph_source import open_graph
    from fnftg.text.distillation import DistillationConfig, distil, load_teacher, save_student
    from fnftg.text.encoders import SHORT_NAMES, STATIC

    config = DistillationConfig(chosen.size, chosen.epochs, chosen.words, chosen.seed)
    if chosen.threads is not None:
        if chosen.threads < 1:
            raise FnftgError(f"--threads is {chosen.threads}: it must be at least 1.")
        torch.set_num_threads(chosen.threads)
    output: Path = chosen.output
    with new_folder(output, "encoder", chosen.force) as partial:
        teacher = load_teacher(chosen.teacher)
        student, found = distil([open_graph(graph) for graph in chosen.graphs], teacher, config, data_home() / "texts")
        what = {"size": config.size, "teacher": chosen.teacher, "graphs": chosen.graphs}
        report = {**what, "words": config.words, "seed": config.seed, **found}
        save_student(student, partial, report)
    if chosen.json:
        print_json({"output": str(output), **report})
        return
    rows = [(name, *figures.values()) for name, figures in report["held_out"].items()]
    print_table(f"{output}: held-out texts", ["", "count", "cosine", "nearest@10"], rows)
    name = f"./{output}" if str(output) in SHORT_NAMES else output  # names of encoders come before folders
    recipe = "frugal" if config.size == STATIC else "wn18rr-tiny"
    log(f"Train with it: fnftg train GRAPH -o RUN --config {recipe} --model.text.encoder {name}")
