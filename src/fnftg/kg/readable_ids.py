"""Derive a text from an id, for entities and relations without a text."""

from __future__ import annotations

from urllib.parse import unquote

import polars as pl

LOCAL_NAME = r"[^/#:]+[/#:]*$"  # of an IRI


def readable(ids: pl.Series) -> pl.Series:
    """Return the readable part of each id.

    `http://dbpedia.org/ontology/birthPlace` → `birth Place`, `_has_part` → `has part`, `/m/06rf7` → `m 06rf7`.
    """
    if not ids.str.contains(r"[\s_/%:]").any():
        return ids
    id_ = pl.col("id")
    is_iri = id_.str.contains(r"^([A-Za-z][A-Za-z0-9+.-]*://|urn:)")
    local = id_.str.extract(f"({LOCAL_NAME})").str.strip_chars_end("/#:")
    part = pl.when(is_iri).then(local.str.replace_all(r"(\p{Ll})(\p{Lu})", "$1 $2")).otherwise(id_).fill_null(id_)
    parts = ids.alias("id").to_frame().select(id_, part=part)
    encoded = parts["part"].str.contains("%", literal=True)
    if encoded.any():
        decoded = pl.Series(
            "part", [unquote(part) for part in parts["part"].filter(encoded).to_list()], dtype=pl.String
        )
        rows = encoded.arg_true()
        parts = parts.with_columns(parts["part"].scatter(rows, decoded))
    words = pl.col("part").str.replace_all(r"[\s_/]+", " ").str.strip_chars()
    return parts.select(pl.when(words.str.len_bytes() > 0).then(words).otherwise(id_))["part"]
