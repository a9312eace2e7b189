"""Made-up graphs keep the promises that the import's benchmark relies on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fnftg.errors import FnftgError
from fnftg.kg.synthetic_graph import write_synthetic

ENTITIES, TRIPLES, RELATIONS = 3_000, 13_000, 40
SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("synth") / "files"
    write_synthetic(target, ENTITIES, TRIPLES, RELATIONS, seed=1)
    return target


def triples_of(folder: Path, split: str) -> list[tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in (folder / f"ind-{split}.tsv").read_text().splitlines()]


def texts_of(folder: Path, kind: str) -> dict[str, str]:
    lines = (folder / f"{kind}2text.txt").read_text().splitlines()
    texts = dict(line.split("\t") for line in lines)
    assert len(texts) == len(lines)
    return texts


def entities_of(triples: list[tuple[str, ...]]) -> set[str]:
    return {triple[place] for triple in triples for place in (0, 2)}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_gives_the_same_bytes_and_another_seed_others(folder: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_synthetic(tmp_path / str(seed), ENTITIES, TRIPLES, RELATIONS, seed=seed)
    same, other = content(tmp_path / "1"), content(tmp_path / "2")
    assert same == content(folder)
    assert same.keys() == other.keys() and all(same[name] != other[name] for name in same)


def test_as_many_entities_triples_and_relations_as_asked_for(folder: Path) -> None:
    splits = [triples_of(folder, split) for split in SPLITS]
    assert sum(map(len, splits)) == TRIPLES
    assert len(set().union(*map(entities_of, splits))) == ENTITIES
    assert len({relation for _, relation, _ in splits[0]}) == RELATIONS


def test_every_id_has_one_text(folder: Path) -> None:
    splits = [triples_of(folder, split) for split in SPLITS]
    assert texts_of(folder, "entity").keys() == set().union(*map(entities_of, splits))
    assert texts_of(folder, "relation").keys() == {relation for _, relation, _ in splits[0]}


def test_splits_share_no_entity_and_no_relation_is_new(folder: Path) -> None:
    train, *held_out = (triples_of(folder, split) for split in SPLITS)
    assert sum(len(entities_of(split)) for split in (train, *held_out)) == ENTITIES
    for split in held_out:
        assert split and {relation for _, relation, _ in split} <= {relation for _, relation, _ in train}


def test_no_triple_is_repeated_and_none_is_a_loop(folder: Path) -> None:
    for split in SPLITS:
        triples = triples_of(folder, split)
        assert len(set(triples)) == len(triples)
        assert all(head != tail for head, _, tail in triples)


def test_texts_begin_with_a_name_and_have_about_as_many_words_as_asked_for(folder: Path) -> None:
    texts = texts_of(folder, "entity").values()
    words = np.array([len(text.split(" ")) for text in texts])
    assert 60 < words.mean() < 68 and words.std() > 20
    assert all(text.split(", ")[0].istitle() for text in texts)
    assert len({text.split(", ")[0] for text in texts}) > 0.99 * ENTITIES


def test_tails_are_heavier_tailed_than_heads_and_relations_follow_zipf(folder: Path) -> None:
    heads, relations, tails = (Counter(column) for column in zip(*triples_of(folder, "train"), strict=True))
    spread = np.std([*heads.values()]) / np.mean([*heads.values()])
    assert 0.8 < spread < 1.2  # in Wikidata5M 4.41 / 4.48
    assert max(tails.values()) > 20 * max(heads.values())
    assert relations.most_common(1)[0][1] > 4 * TRIPLES / RELATIONS


@pytest.mark.parametrize(
    ("entities", "triples", "relations"), [(10, 10, 1), (50, 200, 180), (60, 50, 3), (150, 85, 1), (30, 60, 48)]
)
def test_small_and_odd_sizes_hold_as_well(entities: int, triples: int, relations: int, tmp_path: Path) -> None:
    write_synthetic(tmp_path / "files", entities, triples, relations, words=1)
    splits = [triples_of(tmp_path / "files", split) for split in SPLITS]
    assert [len(set(split)) for split in splits] == [len(split) for split in splits]
    assert sum(map(len, splits)) == triples
    assert [len(entities_of(split)) for split in splits[1:]] == [len(entities_of(splits[1]))] * 2
    assert sum(len(entities_of(split)) for split in splits) == entities == len(texts_of(tmp_path / "files", "entity"))
    assert len({relation for _, relation, _ in splits[0]}) == relations


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"entities": 0}, "0 entities: choose at least 1"),
        ({"triples": -1}, "-1 triples: choose at least 1"),
        ({"relations": 0}, "0 relations: choose at least 1"),
        ({"words": 0}, "0 words"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"triples": 9, "relations": 2}, "too few for three splits"),
        ({"relations": TRIPLES}, "cannot all occur in"),
        ({"entities": 10}, "10 entities are too few"),
        ({"entities": 3 * TRIPLES}, "cannot all occur in"),
        ({"entities": 60}, "choose more entities"),
    ],
)
def test_sizes_that_cannot_be_made_are_one_sentence_and_no_folder(
    arguments: dict[str, int], reason: str, tmp_path: Path
) -> None:
    sizes = {"entities": ENTITIES, "triples": TRIPLES, "relations": RELATIONS, **arguments}
    with pytest.raises(FnftgError, match=reason) as error:
        write_synthetic(tmp_path / "files", **sizes)
    assert "\n" not in str(error.value) and not [*tmp_path.iterdir()]


def test_an_existing_folder_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(FnftgError, match="already exists"):
        write_synthetic(tmp_path / "files", 100, 300, 5)
    write_synthetic(tmp_path / "files", 100, 300, 5, force=True)
    assert (tmp_path / "files" / "ind-train.tsv").is_file()
