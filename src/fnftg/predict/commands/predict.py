"""`fnftg predict`: predict heads, tails or relations."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fnftg.console import log, print_json, print_table, print_text
from fnftg.errors import FnftgError, shortened
from fnftg.kg.commands.shared_arguments import add_json, examples
from fnftg.predict.commands.arguments import add_new, add_run, new_entity
from fnftg.predict.commands.explain import print_short

if TYPE_CHECKING:
    from fnftg.predict.explanation import Explanation
    from fnftg.predict.predictor import Predictor
    from fnftg.predict.questions import Answer, NewEntity, Question, Relation

BLOCK = 256  # lines of a batch answered together
SHOWN = 60  # characters of a text in a table
QUOTES = "'\""
ASKED = ("tails", "heads", "relations")
UNLIKELY = 0.01  # below this probability, no missing link is expected


def predict(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg predict animals-run --head dog --relation hypernym",
        "fnftg predict animals-run --relation hypernym --tail carnivore -k 20 --known",
        "fnftg predict animals-run --head dog --tail wolf",
        "fnftg predict animals-run --head dog --relation hypernym --tail wolf",
        'fnftg predict animals-run --text "okapi, a striped relative of the giraffe" --relation hypernym --reasons',
        'fnftg predict animals-run --text "okapi, …" --edge "hypernym=ruminant" --ask heads --relation "has part"',
        'fnftg predict animals-run --head fox --relation-text "is the natural predator of"',
        "fnftg predict animals-run --batch questions.jsonl > answers.jsonl",
    ) + (
        '\n\na line of a batch file: {"head": "dog", "relation": "hypernym"}; new entities are written as'
        ' {"text": "…", "edges": [["hypernym", "dog"]], "incoming": [], "id": "…"}, new relations as {"text": "…"}'
    )
    add_run(parser)
    parser.add_argument("--head", help="an entity, by id or name")
    parser.add_argument("--relation", help="a relation, by id or name")
    parser.add_argument("--tail", help="an entity, by id or name")
    add_new(parser, "--head or --tail")
    parser.add_argument("--ask", choices=ASKED, help="what to predict (default: the part that is not given)")
    parser.add_argument("-k", type=int, default=10, help="number of answers (default: 10)")
    parser.add_argument("--known", action="store_true", help="keep known triples among the answers, and mark them")
    parser.add_argument(
        "--conditional", action="store_true", help="also show the probability of each answer, given that there is one"
    )
    parser.add_argument("--reasons", action="store_true", help="explain the best answer in a few lines")
    parser.add_argument(
        "--index", action="store_true", help="approximate search in milliseconds; the index is built on first use"
    )
    parser.add_argument(
        "--batch", metavar="FILE", help="a file with one question per line, as JSON; - for standard input"
    )
    parser.add_argument("--save", type=Path, metavar="STORE", help="save the graph with the new entity as a new store")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    from fnftg.predict.predictor import load
    from fnftg.predict.questions import checked_k

    checked_k(chosen.k)
    lines = open_batch(chosen)
    triple = None if lines else whole_triple(chosen)
    question = None if lines or triple else asked_for(chosen)
    predictor = load(chosen.run, chosen.graph)
    if chosen.index:
        predictor = predictor.indexed()
        assert predictor.index is not None
        recall, questions = predictor.index.recall, predictor.index.queries
        log(f"The index finds {recall:.1%} of the ten best answers, measured on {questions} questions.")
    if lines:
        answer_batch(predictor, lines, chosen)
    elif triple is not None:
        print_triple(predictor, triple, chosen)
    elif question is not None:
        answer_one(predictor, question, chosen)


def whole_triple(chosen: Any) -> tuple[Any, Any, Any] | None:
    """Return the triple if head, relation and tail are all given, else None."""
    from fnftg.predict.questions import Relation

    relation: Any = chosen.relation if chosen.relation_text is None else Relation(chosen.relation_text)
    new = new_entity(chosen)
    head = chosen.head if chosen.head is not None else new if chosen.tail is not None else None
    tail = chosen.tail if chosen.tail is not None else new if chosen.head is not None else None
    if None in (head, relation, tail) or (new is not None and None not in (chosen.head, chosen.tail)):
        return None
    return head, relation, tail


def print_triple(predictor: Predictor, triple: tuple[Any, Any, Any], chosen: Any) -> None:
    """Print the probability of a triple and, with --reasons, why."""
    found = predictor.explain(*triple) if chosen.reasons else None
    [probability] = predictor.triple_probabilities([triple])
    known = probability is None
    words = [getattr(part, "text", part) for part in triple]
    if chosen.json:
        value = {"triple": words, "probability": probability, "known": known}
        print_json(value if found is None else {**value, "reasons": found.as_dict()})
        return
    said = "the graph has this triple." if known else f"true with probability {probability:.3f}."
    print_text(f"{' — '.join(shortened(str(word), 60).strip(QUOTES) for word in words)}: {said}")
    if found is not None:
        print_short(found)


def answer_one(predictor: Predictor, question: Question, chosen: Any) -> None:
    answers = predictor.many([question], chosen.k, chosen.known)[0]
    if chosen.save:
        new = [part for part in (question.head, question.tail) if not isinstance(part, (str, int, type(None)))]
        predictor.add(*new).save(chosen.save)
        log(f"Saved the graph with the new entity to {chosen.save}.")
    reasons = best_reasons(predictor, question, answers) if chosen.reasons else None
    if chosen.json:
        found = {"question": as_words(question), "answers": [answer.as_dict() for answer in answers]}
        print_json(found if not chosen.reasons else {**found, "reasons": reasons and reasons.as_dict()})
        return
    print_answers(question, answers, chosen.conditional, missing_words(predictor, question))
    if reasons is not None:
        print_short(reasons)


def best_reasons(predictor: Predictor, question: Question, answers: list[Answer]) -> Explanation | None:
    """Explain the best answer that is not a new entity."""
    place = next(name for name in ("head", "relation", "tail") if getattr(question, name) is None)
    vocabulary = predictor.graph.relations if place == "relation" else predictor.graph.entities
    ids = [answer.id for answer in answers if vocabulary.find(answer.id) is not None]
    if not ids:
        return None
    triple: dict[str, Any] = {**vars(question), place: ids[0]}
    return predictor.explain(**triple, asked="head" if place == "head" else "tail")


def missing_words(predictor: Predictor, question: Question) -> str | None:
    """Say how likely it is that the question has an answer which the graph lacks."""
    found = predictor.missing_answers([question])[0]
    if found is None:
        return None
    if found < UNLIKELY:
        return f"No missing link is expected: this query has a missing answer with probability {found:.2g}."
    return f"This query has a missing answer with probability {found:.2f}."


def print_answers(question: Question, answers: list[Answer], conditional: bool, missing: str | None) -> None:
    likely = any(answer.probability is not None for answer in answers)
    conditional &= any(answer.conditional is not None for answer in answers)
    marked = any(answer.known for answer in answers)
    columns = ["", "score", *(["probability"] if likely else []), *(["given an answer"] if conditional else [])]
    columns += ["id", "name", "text", *(["known"] if marked else [])]
    rows = []
    for answer in answers:
        text = answer.text if len(answer.text) <= SHOWN else answer.text[: SHOWN - 1] + "…"
        values = [answer.probability] if likely else []
        values += [answer.conditional] if conditional else []
        shown = ["" if value is None else f"{value:.3f}" for value in values]
        mark = [] if not marked else ["known" if answer.known else ""]
        rows.append([answer.rank, f"{answer.score:.3f}", *shown, answer.id, answer.name, text, *mark])
    words = as_words(question)
    parts = [
        shortened(str(words[part]), 60).strip("'\"") if words[part] else "?" for part in ("head", "relation", "tail")
    ]
    note = missing or (None if likely else "Scores are not probabilities: run fnftg calibrate to get them.")
    print_table(" — ".join(parts), columns, rows, note if answers else "No answers: all candidates are known triples.")


def answer_batch(predictor: Predictor, lines: Iterator[tuple[str, str]], chosen: Any) -> None:
    """Print one JSON answer per line, in the order of the questions."""
    from fnftg.predict.entity_linking import resolved
    from fnftg.predict.inference import answered
    from fnftg.predict.questions import ResolvedQuery

    waiting: list[tuple[Question, ResolvedQuery]] = []

    def answer() -> None:
        found = answered(predictor, [asked for _, asked in waiting], chosen.k, chosen.known)
        for (question, _), answers in zip(waiting, found, strict=True):
            line = {"question": as_words(question), "answers": [answer.as_dict() for answer in answers]}
            print_json(line, indent=None)
        sys.stdout.flush()
        waiting.clear()

    for place, line in lines:
        try:
            question = read_question(line)
            waiting.append((question, resolved(question, predictor.entity_names, predictor.relation_names)))
        except FnftgError as error:
            raise FnftgError(f"{place}: {error}") from error
        if len(waiting) == BLOCK:
            answer()
    answer()


# Parsing


def asked_for(chosen: Any) -> Question:
    """Build the question from the options."""
    from fnftg.predict.questions import Question, Relation

    if chosen.relation and chosen.relation_text is not None:
        raise FnftgError("--relation and --relation-text exclude each other: give one of them.")
    relation: Any = chosen.relation if chosen.relation_text is None else Relation(chosen.relation_text)
    head, tail = chosen.head, chosen.tail
    new = new_entity(chosen)
    if new is not None:
        if head is not None and tail is not None:
            raise FnftgError("--text adds a third entity to --head and --tail: leave out one of them.")
        if head is not None or (chosen.ask == "heads" and tail is None):
            tail = new
        else:
            head = new
    given = {"head": head, "relation": relation, "tail": tail}
    if list(given.values()).count(None) != 1:
        raise FnftgError(
            "Give two of --head, --relation and --tail (or --text, --relation-text); the third is predicted."
        )
    missing = {"head": "heads", "relation": "relations", "tail": "tails"}[
        next(k for k, v in given.items() if v is None)
    ]
    if chosen.ask not in (None, missing):
        raise FnftgError(
            f"--ask {chosen.ask} does not match the other options, which ask for {missing}: leave out --ask."
        )
    return Question(**given)


def open_batch(chosen: Any) -> Iterator[tuple[str, str]] | None:
    """Return the non-blank lines of the batch with their positions, or None if there is a single question."""
    if chosen.batch is None:
        return None
    single = ("head", "relation", "tail", "text", "relation_text", "id", "save", "ask")
    several = (chosen.edge, chosen.edge_from, chosen.reasons)
    if any(getattr(chosen, name) is not None for name in single) or any(several):
        raise FnftgError(
            "--batch reads all questions from its file: leave out --reasons and the options of a single question."
        )
    if chosen.batch != "-" and not Path(chosen.batch).is_file():
        raise FnftgError(f"{chosen.batch} is not a file: check the path.")
    return batch_lines(chosen.batch)


def batch_lines(name: str) -> Iterator[tuple[str, str]]:
    called = "standard input" if name == "-" else name
    file = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115 (closed below)
    with file:
        for number, line in enumerate(file, start=1):
            place = f"{called}, line {number}"
            try:
                text = line.decode().strip()
            except UnicodeDecodeError as error:
                raise FnftgError(f"{place}: the line is not UTF-8; convert the file.") from error
            if text:
                yield place, text


def read_question(line: str) -> Question:
    from fnftg.predict.questions import Question

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FnftgError(
            f"the line is not JSON ({error})." if isinstance(error, ValueError) else "nested too deep."
        ) from error
    if not isinstance(value, dict) or not set(value) <= {"head", "relation", "tail"}:
        raise FnftgError('a question is {"head": …, "relation": …, "tail": …} without the part to predict.')
    return Question(entity(value.get("head")), relation(value.get("relation")), entity(value.get("tail")))


def entity(value: Any) -> str | int | NewEntity | None:
    """Parse an id, a name, a row, or a new entity as an object."""
    from fnftg.predict.questions import NewEntity

    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    if not isinstance(value, dict) or not set(value) <= {"text", "edges", "incoming", "id"}:
        raise FnftgError(
            f"{shortened(json.dumps(value))} is not an entity: give an id, a name or an object with a text."
        )

    def edges(name: str) -> list[tuple[Any, Any]]:
        found = value.get(name, [])
        if not isinstance(found, list) or not all(isinstance(edge, list) and len(edge) == 2 for edge in found):
            raise FnftgError(f'"{name}" must be a list of [relation, entity] pairs.')
        return [(relation(edge[0]), entity(edge[1])) for edge in found]

    return NewEntity(value.get("text", ""), edges("edges"), edges("incoming"), value.get("id"))


def relation(value: Any) -> str | int | Relation | None:
    from fnftg.predict.questions import Relation

    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    if not isinstance(value, dict) or set(value) != {"text"}:
        raise FnftgError(
            f"{shortened(json.dumps(value))} is not a relation: give an id, a name or an object with a text."
        )
    return Relation(value["text"])


def as_words(question: Question) -> dict[str, Any]:
    """Return the question as given, with the texts of new entities and relations."""
    parts = {"head": question.head, "relation": question.relation, "tail": question.tail}
    return {name: getattr(part, "text", part) for name, part in parts.items()}
