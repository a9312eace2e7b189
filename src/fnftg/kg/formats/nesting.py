"""Measure the nesting depth of a document before it is parsed, because deep nesting overflows a parser's stack.

The loops are compiled and keep their position in `state` between the parts of a document. They are exact for valid
documents; a parser rejects an invalid document before it nests deeper.
"""

from __future__ import annotations

import numba
import numpy as np

from fnftg.arrays import Int64Array, UInt8Array

MODE, DEPTH, LINE, PREVIOUS, LENGTH, REFERENCES = range(6)  # indices of the state
DEEP, LONG = 1, 2  # results

LINE_FEED, QUOTE, HASH, AMPERSAND, APOSTROPHE, BACKSLASH = 10, 34, 35, 38, 39, 92
LESS, GREATER, SLASH, BANG, QUESTION, HYPHEN = 60, 62, 47, 33, 63, 45
OPEN_ROUND, CLOSE_ROUND, OPEN_SQUARE, CLOSE_SQUARE, OPEN_CURLY, CLOSE_CURLY = 40, 41, 91, 93, 123, 125

PLAIN, STRING, ESCAPED = 0, 1, 2


class Nesting:
    """The nesting depth of a document, computed part by part.

    Args:
        format: ttl (also for N-Triples and N-Quads), jsonld or rdfxml.
        deepest: the maximum depth.
        longest: for XML, the maximum number of bytes of a tag or a text.
    """

    def __init__(self, format: str, deepest: int, longest: int):
        self.scan = {"jsonld": _scan_json, "rdfxml": _scan_xml}.get(format, _scan_turtle)
        self.deepest, self.longest = deepest, longest
        self.state = np.zeros(8, np.int64)
        self.state[LINE] = 1

    def add(self, data: bytes) -> int:
        """Read the next part. Returns 0, or DEEP or LONG where a limit is exceeded."""
        return int(self.scan(np.frombuffer(data, np.uint8), self.state, self.deepest, self.longest))

    @property
    def line(self) -> int:
        return int(self.state[LINE])

    @property
    def references(self) -> int:
        """Number of `&` in an XML document so far."""
        return int(self.state[REFERENCES])


@numba.njit(cache=True)
def _scan_json(data: UInt8Array, state: Int64Array, deepest: int, longest: int) -> int:
    mode, depth, line, wrong = state[MODE], state[DEPTH], state[LINE], 0
    for position in range(len(data)):
        byte = data[position]
        if byte == LINE_FEED:
            line += 1
        if mode == ESCAPED:
            mode = STRING
        elif mode == STRING:
            if byte == QUOTE:
                mode = PLAIN
            elif byte == BACKSLASH:
                mode = ESCAPED
        elif byte == QUOTE:
            mode = STRING
        elif byte in (OPEN_CURLY, OPEN_SQUARE):
            depth += 1
            if depth > deepest:
                wrong = DEEP
                break
        elif byte in (CLOSE_CURLY, CLOSE_SQUARE):
            depth -= 1
    state[MODE], state[DEPTH], state[LINE] = mode, depth, line
    return wrong


# Turtle, N-Triples, N-Quads. Of a string, the state has the quote character and the number of consecutive quotes.
IRI, COMMENT, AFTER_LESS, AFTER_GREATER, PLAIN_ESCAPED = 3, 4, 5, 6, 7
OPENING, SHORT, SHORT_ESCAPED, LONG_STRING, LONG_ESCAPED = 8, 9, 10, 11, 12
QUOTED_BY, QUOTES = PREVIOUS, LENGTH


@numba.njit(cache=True)
def _scan_turtle(data: UInt8Array, state: Int64Array, deepest: int, longest: int) -> int:
    mode, depth, line, wrong = state[MODE], state[DEPTH], state[LINE], 0
    quoted_by, quotes = state[QUOTED_BY], state[QUOTES]
    for position in range(len(data)):
        byte = data[position]
        if byte == LINE_FEED:
            line += 1
        if mode == IRI:
            if byte == GREATER:
                mode = PLAIN
            continue
        if mode == SHORT:
            if byte == quoted_by:
                mode = PLAIN
            elif byte == BACKSLASH:
                mode = SHORT_ESCAPED
            continue
        if mode == COMMENT:
            if byte in (LINE_FEED, 13):
                mode = PLAIN
            continue
        if mode == LONG_STRING:
            if byte == quoted_by:
                quotes += 1
                if quotes == 3:
                    mode = PLAIN
            else:
                quotes = 0
                if byte == BACKSLASH:
                    mode = LONG_ESCAPED
            continue
        if mode == SHORT_ESCAPED:
            mode = SHORT
            continue
        if mode == LONG_ESCAPED:
            mode = LONG_STRING
            continue
        if mode == PLAIN_ESCAPED:
            mode = PLAIN
            continue
        if mode == OPENING:  # after one or two quotes: a short string, a long one, or an empty one
            if byte == quoted_by:
                quotes += 1
                if quotes == 3:
                    mode, quotes = LONG_STRING, 0
                continue
            if quotes == 1:
                mode = SHORT_ESCAPED if byte == BACKSLASH else SHORT
                continue
            mode = PLAIN
        if mode == AFTER_LESS:
            if byte == LESS:
                mode = PLAIN
                depth += 1
            else:
                mode = PLAIN if byte == GREATER else IRI
        elif mode == AFTER_GREATER and byte == GREATER:
            mode = PLAIN
            depth -= 1
        else:
            mode = PLAIN
            if byte == LESS:
                mode = AFTER_LESS
            elif byte == GREATER:
                mode = AFTER_GREATER
            elif byte in (QUOTE, APOSTROPHE):
                mode, quoted_by, quotes = OPENING, np.int64(byte), 1
            elif byte == HASH:
                mode = COMMENT
            elif byte == BACKSLASH:
                mode = PLAIN_ESCAPED
            elif byte in (OPEN_SQUARE, OPEN_ROUND, OPEN_CURLY):
                depth += 1
            elif byte in (CLOSE_SQUARE, CLOSE_ROUND, CLOSE_CURLY):
                depth -= 1
        if depth > deepest:
            wrong = DEEP
            break
    state[MODE], state[DEPTH], state[LINE] = mode, depth, line
    state[QUOTED_BY], state[QUOTES] = quoted_by, quotes
    return wrong


# XML. A declaration is a comment, CDATA or the document type, in which < and > are balanced.
TAG_START, TAG, ATTRIBUTE, END_TAG, INSTRUCTION = 3, 4, 5, 6, 7
DECLARATION, COMMENT_START, XML_COMMENT, CDATA, DOCTYPE = 8, 9, 10, 11, 12
BEFORE, PAIRS = 6, 7


@numba.njit(cache=True)
def _scan_xml(data: UInt8Array, state: Int64Array, deepest: int, longest: int) -> int:
    mode, depth, line, wrong = state[MODE], state[DEPTH], state[LINE], 0
    previous, before, length, pairs = state[PREVIOUS], state[BEFORE], state[LENGTH], state[PAIRS]
    references = state[REFERENCES]
    for position in range(len(data)):
        byte = np.int64(data[position])
        length += 1
        if byte == LINE_FEED:
            line += 1
        elif byte == AMPERSAND:
            references += 1
        if mode == PLAIN:
            if byte == LESS:
                mode, length = TAG_START, 0
        elif mode == ATTRIBUTE:
            if byte == before:  # the quote that opened it
                mode, before = TAG, 0
        elif mode == TAG:
            if byte in (QUOTE, APOSTROPHE):
                mode, before = ATTRIBUTE, byte
            elif byte == GREATER:
                mode, length = PLAIN, 0
                if previous == SLASH:
                    depth -= 1
        elif mode == TAG_START:
            if byte == SLASH:
                mode = END_TAG
            elif byte == BANG:
                mode = DECLARATION
            elif byte == QUESTION:
                mode = INSTRUCTION
            else:
                mode = TAG
                depth += 1
                if depth > deepest:
                    wrong = DEEP
                    break
        elif mode == END_TAG:
            if byte == GREATER:
                mode, length = PLAIN, 0
                depth -= 1
        elif mode == DECLARATION:
            if byte == HYPHEN:
                mode = COMMENT_START
            elif byte == OPEN_SQUARE:
                mode = CDATA
            else:
                mode, pairs = DOCTYPE, 1
        elif mode == COMMENT_START:
            mode, before, byte = XML_COMMENT, 0, np.int64(0)
        elif mode == DOCTYPE:
            if byte == LESS:
                pairs += 1
            elif byte == GREATER:
                pairs -= 1
                if pairs == 0:
                    mode, length = PLAIN, 0
        else:
            mark = HYPHEN if mode == XML_COMMENT else CLOSE_SQUARE
            ends = previous == QUESTION if mode == INSTRUCTION else previous == mark and before == mark
            if byte == GREATER and ends:
                mode, length = PLAIN, 0
            before = previous
        if length > longest:
            wrong = LONG
            break
        previous = byte
    state[MODE], state[DEPTH], state[LINE], state[PREVIOUS] = mode, depth, line, previous
    state[BEFORE], state[LENGTH], state[PAIRS], state[REFERENCES] = before, length, pairs, references
    return wrong
