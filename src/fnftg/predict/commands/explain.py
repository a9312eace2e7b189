"""`fnftg explain`: explain the score of a triple."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fnftg.console import log, print_json, print_table, print_text
from fnftg.errors import FnftgError
from fnftg.kg.commands.shared_arguments import add_json, examples
from fnftg.predict.commands.arguments import add_new, add_run, new_entity

DASH = "-"
SHOWN, SHORT = 10, 4  # edges and words per table, and in the short form
ARROWS = {"out": "→", "in": "←"}


def explain(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.description = f"""{parser.description}\n
Explains TAIL as an answer to (HEAD, RELATION, ?): the attention in both ego-graphs, the change of score and rank
without each edge and each word, the evidence, and the nearest training triples. Every change is computed exactly; the
other sampled edges stay the same.

If the triple is in the graph, it is hidden first, as in evaluation, so that it does not explain itself.

To explain a triple with a new entity, describe the entity with --text and write - for HEAD or TAIL. For a new relation,
use --relation-text and write - for RELATION."""
    parser.epilog = examples(
        "fnftg explain animals-run poodle hypernym dog",
        "fnftg explain animals-run poodle hypernym dog --svg poodle.svg",
        "fnftg explain animals-run poodle hypernym dog --asked head --json",
        'fnftg explain animals-run - hypernym ruminant --text "okapi, a striped relative of the giraffe"',
    )
    add_run(parser)
    parser.add_argument("head", metavar="HEAD", help="an entity, by id or name; - for the entity of --text")
    parser.add_argument("relation", metavar="RELATION", help="a relation, by id or name; - for --relation-text")
    parser.add_argument("tail", metavar="TAIL", help="an entity, by id or name; - for the entity of --text")
    add_new(parser, "HEAD or TAIL")
    parser.add_argument(
        "--asked",
        choices=("tail", "head"),
        default="tail",
        help="which end of the triple is the answer (default: tail)",
    )
    parser.add_argument(
        "--hide-target",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="remove the triple from both ego-graphs first, if the graph has it",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw both ego-graphs to this file")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    from fnftg.files import check_output_file, new_file
    from fnftg.predict.explanation_drawing import drawing
    from fnftg.predict.predictor import load

    if chosen.svg:
        check_output_file(chosen.svg, chosen.force, chosen.graph)
    triple = asked_about(chosen)
    found = load(chosen.run, chosen.graph).explain(*triple, chosen.asked, chosen.hide_target)
    if chosen.svg:
        with new_file(chosen.svg, chosen.force) as partial:
            partial.write_text(drawing(found), encoding="utf-8")
        log(f"Saved the drawing to {chosen.svg}.")
    if chosen.json:
        print_json(found.as_dict())
    else:
        print_reasons(found)


def asked_about(chosen: Any) -> tuple[Any, Any, Any]:
    """Return the triple, with the new entity and relation in the places of the dashes."""
    from fnftg.predict.questions import Relation

    new, relation = new_entity(chosen), None if chosen.relation_text is None else Relation(chosen.relation_text)
    if (new is not None) != (DASH in (chosen.head, chosen.tail)):
        raise FnftgError("--text and - belong together: describe the entity with --text, and write - for HEAD or TAIL.")
    if (relation is not None) != (chosen.relation == DASH):
        raise FnftgError(
            "--relation-text and - belong together: describe the relation with it, and write - for RELATION."
        )
    head, tail = (new if name == DASH else name for name in (chosen.head, chosen.tail))
    return head, relation or chosen.relation, tail


def print_reasons(found: Any) -> None:
    from fnftg.predict.explanation_drawing import outcome, triple_words

    print_text(f"{triple_words(found)}\n{outcome(found)}\n")
    print_queries(found)
    for words, side in (("query entity", found.query), ("answer", found.candidate)):
        rows: list[tuple[Any, ...]] = []
        for edge in side.edges[:SHOWN]:
            paid = "" if edge.mean_attention is None else f"{edge.mean_attention:.1%}"
            rows.append(
                (step_words(edge.edge), edge.neighbour.name, paid, f"{edge.effect:+.4f}", f"{edge.rank_without:,g}")
            )
        more = len(side.edges) - len(rows)
        note = None if side.own_attention is None else own_words(side.own_attention)
        note = (f"{more:,} more with --json. " if more else "") + (note or "")
        title = f"{words} {side.entity.name}: effect of each edge on the score"
        if rows:
            columns = ["edge", "neighbour", "attention", "adds", "rank without it"]
            print_table(title, columns, rows, note or None)
        else:
            print_text(f"{words} {side.entity.name}: no edges\n")
    for words, side in (("query entity", found.query), ("answer", found.candidate)):
        best = sorted(side.words, key=lambda word: -abs(word.effect))[:SHOWN]
        rows = [(word.word, f"{word.effect:+.4f}", f"{word.rank_without:,g}") for word in best]
        if rows:
            title = f"{words} {side.entity.name}: effect of each word on the score"
            print_table(title, ["word", "adds", "rank without it"], rows)
    for reason in found.evidence:
        note = f"It adds {reason.effect:+.4f}; without this evidence the rank is {reason.rank_without:,g}."
        if reason.sentence:
            print_text(f"evidence {reason.source}: {reason.sentence}. {note}\n")
        if reason.items and not reason.sentence:
            kind = "entity" if reason.items[0].entity is not None else "edge"
            columns = [kind, *([reason.value_name] if reason.value_name else [])]
            rows = [(item_words(item), *item_value(item)) for item in reason.items[:SHOWN]]
            print_table(f"evidence {reason.source}: {reason.title}", columns, rows, note)
    if found.nearest:
        rows = [(near.head.name, near.tail.name, f"{near.distance:.3f}") for near in found.nearest]
        note = "The distance is the L1 distance of the heads' vectors plus that of the tails' vectors."
        print_table(f"the nearest training triples of {found.relation.name}", ["head", "tail", "distance"], rows, note)


def print_queries(found: Any) -> None:
    """Print whether the two queries of the triple have missing answers, and why."""
    for one in found.queries:
        ends = (found.head.name, "?") if one.asked == "tail" else ("?", found.tail.name)
        print_text(
            f"{ends[0]} — {found.relation.name} → {ends[1]} has a missing answer with probability "
            f"{one.probability:.2g}. {' '.join(one.sentences)}"
        )
    if found.queries:
        print_text("")


def item_words(item: Any) -> str:
    """Describe an item by its edge, its entity, or both."""
    edge = "" if item.relation is None else step_words(item.relation)
    return f"{edge} {item.entity.name}".strip() if item.entity is not None else edge


def item_value(item: Any) -> list[str]:
    return [] if item.value is None else [f"{item.value:.3f}"]


def print_short(found: Any) -> None:
    """Print the strongest reasons in a few lines."""
    lines = []
    for words, side in (("query", found.query), ("answer", found.candidate)):
        of_words = [(word.word.strip(",;.:()"), word.effect) for word in side.words]
        of_edges = [(way_of(edge), edge.effect) for edge in side.edges]
        for kind, effects in (("words", of_words), ("edges", of_edges)):
            best = sorted(effects, key=lambda one: -abs(one[1]))[:SHORT]
            if best:
                lines.append((f"{words} {kind}", ", ".join(f"{word} ({effect:+.3g})" for word, effect in best)))
    for reason in found.evidence:
        words = reason.sentence or ", ".join(map(item_words, reason.items[:SHORT]))
        lines.append((reason.source.replace("_", " "), f"{words} ({reason.effect:+.3g})"))
    if found.nearest:
        near = (f"{near.head.name} → {near.tail.name}" for near in found.nearest[:SHORT])
        lines.append(("similar in training", ", ".join(near)))
    print_queries(found)
    answer = found.tail if found.asked == "tail" else found.head
    print_text(f"Why {answer.name}? The largest effects on its score:")
    print_text("\n".join(f"  {title:23}{words}" for title, words in lines) + "\n")


def way_of(edge: Any) -> str:
    """Describe an edge by its relation, its direction and the neighbour."""
    return f"{step_words(edge.edge)} {edge.neighbour.name}"


def step_words(step: Any) -> str:
    """Describe a relation with its direction."""
    return f"{ARROWS[step.direction]} {step.relation}"


def own_words(own: list[float]) -> str:
    by_head = ", ".join(f"{share:.1%}" for share in own)
    return f"Attention is the mean over {len(own)} heads; the entity's attention to itself is {by_head}."
