"""Chunks of rows, and how rows are spelled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from duck_types import TYPES
from pz.connectors.contract import Column
from pz.connectors.files.formats import Format
from pz.connectors.files.values import DuckType, writing
from pz.connectors.http.chunks import Chunk, Chunker
from pz.connectors.http.encode import Lines, RowEncoder


def lines(texts: Sequence[bytes]) -> Lines:
    return Lines(memoryview(b"".join(texts)), [0, *accumulate(map(len, texts))])


def pieces(texts: Sequence[bytes], cuts: Sequence[int]) -> Iterator[Lines]:
    edges = [0, *sorted(cut % (len(texts) + 1) for cut in cuts), len(texts)]
    return (lines(texts[start:end]) for start, end in pairwise(edges))


def chunks(chunker: Chunker, given_: Iterator[Lines]) -> list[Chunk]:
    return [chunk for piece in given_ for chunk in chunker.add(piece)] + list(chunker.rest())


def greedy(texts: Sequence[bytes], rows: int, size: int, left_out: frozenset[int]) -> list[list[int]]:
    """Row by row, the plainest way to cut: the places of each chunk."""
    found: list[list[int]] = []
    held = 0
    for place, text in enumerate(texts):
        if place in left_out:
            continue
        if not found or len(found[-1]) == rows or held + len(text) > size:
            found.append([])
            held = 0
        found[-1].append(place)
        held += len(text)
    return found


@given(
    st.lists(st.integers(1, 30).map(lambda size: b"x" * size + b"\n"), max_size=60),
    st.integers(1, 12),
    st.integers(1, 90),
    st.frozensets(st.integers(0, 60), max_size=20),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_chunks_are_cut_greedily_whatever_pieces_the_rows_come_in(
    texts: list[bytes], rows: int, size: int, left_out: frozenset[int], cuts: list[int]
) -> None:
    chunker = Chunker(rows, size, 0, left_out)
    found = chunks(chunker, pieces(texts, cuts))
    assert [chunk.offsets for chunk in found] == greedy(texts, rows, size, left_out)
    assert chunker.reached == len(texts)
    for chunk in found:
        sent = [texts[place] for place in chunk.offsets]
        assert chunk.text == b"".join(sent)
        assert [line + b"\n" for line in chunk.lines] == sent
        assert len(chunk) == len(sent)
    ends = [chunk.end for chunk in found]
    assert ends == sorted(ends)
    assert all(chunk.offsets[-1] < chunk.end for chunk in found)


@given(
    st.lists(st.integers(1, 30).map(lambda size: b"x" * size + b"\n"), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 90),
    st.data(),
)
def test_a_delivery_that_continues_behind_a_chunk_cuts_the_same_ones(
    texts: list[bytes], rows: int, size: int, data: st.DataObject
) -> None:
    whole = chunks(Chunker(rows, size), pieces(texts, []))
    done = data.draw(st.integers(0, len(whole) - 1))
    start = whole[done].end
    again = chunks(Chunker(rows, size, start), pieces(texts[start:], [3]))
    assert [(c.offsets, c.text, c.end) for c in again] == [(c.offsets, c.text, c.end) for c in whole[done + 1 :]]


def test_every_type_is_spelled_as_in_json_files(tmp_path: Path) -> None:
    """Texts with line ends of every kind too: a row is one line, and its bytes are those of DuckDB's own json writer."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET arrow_lossless_conversion = true")
        for type_, values in TYPES.items():
            listed = ", ".join(f"(CAST({value} AS {type_}))" for value in (*values, "NULL"))
            resolved = DuckType.parse(db, type_)
            if any(part.kind == "union" for part in resolved.walk()):
                continue  # refused, PZ0723
            spelled = writing(Format.JSON, 'a "b', resolved)
            table = db.sql(f'SELECT v AS "a ""b" FROM (VALUES {listed}) t(v)').to_arrow_table()
            db.register("sent", table)
            file = tmp_path / "file.json"
            cast = f'SELECT CAST("a ""b" AS {resolved.sql}) AS "a ""b" FROM sent'
            db.execute(f'COPY (SELECT {spelled} AS "a ""b" FROM ({cast})) TO \'{file}\' (FORMAT json)')
            encoder = RowEncoder((Column('a "b', resolved.sql),))
            try:
                batches = table.to_batches()
                found = b"".join(piece.between(0, len(piece)) for batch in batches for piece in encoder.lines(batch))
            finally:
                encoder.close()
            assert found == file.read_bytes(), type_


def test_a_column_may_have_any_name() -> None:
    names = ["__pz_sent", "__pz_row", "e0", "rowid", 'a"b', "\u00e9 ", "select", "to_json"]
    encoder = RowEncoder([Column(name, "BIGINT") for name in names])
    try:
        batch = pa.record_batch({name: [n] for n, name in enumerate(names)})
        (piece,) = encoder.lines(batch)
        assert json.loads(piece.between(0, 1)) == {name: n for n, name in enumerate(names)}
        assert encoder.keys(batch, "__pz_sent") == ["0"]
    finally:
        encoder.close()


def test_rows_come_in_order_and_in_pieces_of_any_number() -> None:
    encoder = RowEncoder((Column("n", "BIGINT"),))
    try:
        for count in (0, 1, 8_192, 30_000):
            batch = pa.record_batch({"n": list(range(count))}, pa.schema([("n", pa.int64())]))
            found = [line for piece in encoder.lines(batch) for line in piece]
            assert found == [b'{"n":%d}\n' % n for n in range(count)]
            sliced = [line for piece in encoder.lines(batch.slice(count // 2)) for line in piece]
            assert sliced == found[count // 2 :]
    finally:
        encoder.close()
