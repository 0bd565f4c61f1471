"""Reading files: headers by name, what is NULL, and every kind of broken file refused with its place."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from file_support import connect, dataset, partitions, read, read_batches, source
from pz.connectors.contract import BatchOptions, Bound, CancelToken, DatasetSpec, PermanentError, ReadHints
from pz.connectors.files.paths import FileRoot, FileStamp, group_files
from pz.errors import Code

AB = {"a": "INTEGER", "b": "VARCHAR"}


def put(base: Path, data: bytes, name: str = "f.csv") -> str:
    path = base / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


def refused(base: Path, wanted: DatasetSpec) -> PermanentError:
    """The refusal, the same code on both ways of moving."""
    with pytest.raises(PermanentError) as native:
        read(base, wanted)
    with pytest.raises(PermanentError) as batches:
        read_batches(base, wanted)
    assert native.value.code is batches.value.code
    return native.value


def same(base: Path, wanted: DatasetSpec) -> list[tuple[object, ...]]:
    """The rows, the same on both ways of moving."""
    rows = read(base, wanted)
    assert sorted(map(repr, read_batches(base, wanted))) == sorted(map(repr, rows))
    return rows


class TestColumns:
    def test_the_contract_binds_by_name_whatever_the_order_in_the_file(self, tmp_path: Path) -> None:
        put(tmp_path, b"b,extra,a\nx,9,1\ny,8,2\n")
        assert same(tmp_path, dataset("f.csv", AB)) == [(1, "x"), (2, "y")]

    def test_columns_beyond_the_contract_are_read_past(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"a":1,"b":"x","c":3}\n', "f.json")
        assert same(tmp_path, dataset("f.json", AB, format="json")) == [(1, "x")]

    def test_a_declared_column_that_the_file_lacks_is_named(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,c\n1,2\n")
        error = refused(tmp_path, dataset("f.csv", AB))
        assert (error.code, "'b'" in error.message, "f.csv" in error.message) == (Code.PZ0353, True, True)

    def test_a_declared_column_that_a_parquet_file_lacks_is_named(self, tmp_path: Path) -> None:
        connect().execute(f"COPY (SELECT 1 AS a) TO '{tmp_path}/f.parquet'")
        error = refused(tmp_path, dataset("f.parquet", AB, format="parquet"))
        assert (error.code, "'b'" in error.message) == (Code.PZ0353, True)

    def test_a_header_in_another_case_is_the_same_column(self, tmp_path: Path) -> None:
        put(tmp_path, b"A,B\n1,x\n")
        assert same(tmp_path, dataset("f.csv", AB)) == [(1, "x")]

    @pytest.mark.parametrize("header", [b"a,b,a", b"a,b,A"])
    def test_a_header_that_repeats_a_name_is_refused(self, header: bytes, tmp_path: Path) -> None:
        put(tmp_path, header + b"\n1,x,2\n")
        assert refused(tmp_path, dataset("f.csv", AB)).code is Code.PZ0722
        assert refused(tmp_path, dataset("f.csv")).code is Code.PZ0722

    def test_odd_names_in_the_header_are_kept_exactly(self, tmp_path: Path) -> None:
        put(tmp_path, 'Order,"Amount, USD","a""b",ÄÖ,my col,select\n1,2,3,4,5,6\n'.encode())
        with_names = source(tmp_path).probe(dataset("f.csv"))
        assert with_names.columns is not None
        assert [c.name for c in with_names.columns] == ["Order", "Amount, USD", 'a"b', "ÄÖ", "my col", "select"]
        assert same(tmp_path, dataset("f.csv")) == [(1, 2, 3, 4, 5, 6)]

    def test_without_a_contract_types_are_inferred_and_leading_zeros_stay_text(self, tmp_path: Path) -> None:
        put(
            tmp_path,
            b"zip,n,d,t,x\n00123,1,2024-01-31,2024-01-31 10:00:00,1.5\n00456,2,2024-02-29,2024-01-31 10:00:01,2.5\n",
        )
        columns = source(tmp_path).probe(dataset("f.csv")).columns
        assert columns is not None
        assert [c.type for c in columns] == ["VARCHAR", "BIGINT", "DATE", "TIMESTAMP", "DOUBLE"]

    def test_a_late_row_that_does_not_fit_the_inferred_type_fails_instead_of_being_rounded(
        self, tmp_path: Path
    ) -> None:
        put(tmp_path, b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(30_000)) + b"1.5,y\n")
        error = refused(tmp_path, dataset("f.csv"))
        assert (error.code, "'a'" in error.message, "1.5" in error.message) == (Code.PZ0722, True, False)
        assert "columns" in (error.hint or "")

    def test_files_in_another_column_order_are_one_dataset(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "in/1.csv")
        put(tmp_path, b"b,a\ny,2\n", "in/2.csv")
        assert sorted(same(tmp_path, dataset("in/*.csv"))) == [(1, "x"), (2, "y")]
        assert sorted(same(tmp_path, dataset("in/*.csv", AB))) == [(1, "x"), (2, "y")]

    def test_files_with_other_columns_are_refused_without_a_contract(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "in/1.csv")
        put(tmp_path, b"a,c\n1,x\n", "in/2.csv")
        error = refused(tmp_path, dataset("in/*.csv"))
        assert (error.code, "'b', 'c'" in error.message) == (Code.PZ0722, True)

    def test_json_columns_are_those_of_all_records(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"a":1}\n' * 30_000 + b'{"a":2,"late":"x"}\n', "f.json")
        rows = read(tmp_path, dataset("f.json", format="json"))
        assert rows[-1] == (2, "x")

    @pytest.mark.parametrize("layout", ["ndjson", "array"])
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (b'{"a":1,"A":2}', "differ from others in case alone: 'A'"),
            # DuckDB 2 refuses an empty key itself.
            (
                b'{"":1}',
                "not hold json objects"
                if duckdb.__version__ >= "2"
                else "are empty or differ from others in case alone: ''",
            ),
            (b'{"c":{"d":1,"D":2}}', "differ from others in case alone"),
        ],
    )
    def test_json_keys_that_would_be_lost_are_refused(
        self, text: bytes, words: str, layout: str, tmp_path: Path
    ) -> None:
        put(tmp_path, b"[" + text + b"]" if layout == "array" else text, "f.json")
        assert words in refused(tmp_path, dataset("f.json", format="json", layout=layout)).message

    def test_json_keys_that_look_renamed_are_kept(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"a_1":1,"C0":2}\n{"a":3}', "f.json")
        assert same(tmp_path, dataset("f.json", format="json")) == [(1, 2, None), (None, None, 3)]

    def test_declared_json_keys_must_be_there_as_they_are_spelled(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"A":1,"b":"x"}', "f.json")
        error = refused(tmp_path, dataset("f.json", AB, format="json"))
        assert (error.code, "'A' where `columns` declares 'a'" in error.message) == (Code.PZ0353, True)
        put(tmp_path, b'{"x":1}', "f.json")
        assert "none of the keys" in refused(tmp_path, dataset("f.json", AB, format="json")).message
        put(tmp_path, b'{"b":"x"}', "f.json")
        assert same(tmp_path, dataset("f.json", AB, format="json")) == [(None, "x")]

    def test_a_hive_like_folder_adds_no_column(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "y=2024/f.csv")
        assert same(tmp_path, dataset("y=2024/*.csv")) == [(1, "x")]


class TestNull:
    def test_an_empty_cell_is_null_and_a_quoted_empty_is_the_empty_text(self, tmp_path: Path) -> None:
        put(tmp_path, b'a,b\n1,\n2,""\n,x\n')
        for contract in (AB, None):
            assert same(tmp_path, dataset("f.csv", contract)) == [(1, None), (2, ""), (None, "x")]

    def test_declared_spellings_of_null_count_unquoted_only(self, tmp_path: Path) -> None:
        put(tmp_path, b'a,b\nNA,NA\n2,"NA"\n,\n')
        for contract in (AB, None):
            rows = same(tmp_path, dataset("f.csv", contract, null_text=["NA"]))
            assert rows == [(None, None), (2, "NA"), (None, None)]

    def test_quoted_empty_cells_can_be_declared_null(self, tmp_path: Path) -> None:
        put(tmp_path, b'"a","b"\n"","x"\n"2",""\n')
        assert same(tmp_path, dataset("f.csv", AB, quoted_empty="null")) == [(None, "x"), (2, None)]

    def test_a_blank_line_is_a_null_where_there_is_one_column_and_nothing_elsewhere(self, tmp_path: Path) -> None:
        put(tmp_path, b"a\n1\n\n2\n")
        assert same(tmp_path, dataset("f.csv", {"a": "INTEGER"})) == [(1,), (None,), (2,)]
        put(tmp_path, b"a,b\n1,x\n\n2,y\n\n")
        assert same(tmp_path, dataset("f.csv", AB)) == [(1, "x"), (2, "y")]


class TestText:
    @pytest.mark.parametrize(
        "data",
        [b"\xef\xbb\xbfa,b\n1,x\n", b"a,b\r\n1,x\r\n", b"a,b\n1,x", b"a,b\r1,x\r", b'"a","b"\n"1","x"\n'],
        ids=["bom", "crlf", "no final line end", "cr", "all quoted"],
    )
    def test_usual_spellings_of_a_file_are_read_alike(self, data: bytes, tmp_path: Path) -> None:
        put(tmp_path, data)
        for contract in (AB, None):
            assert same(tmp_path, dataset("f.csv", contract)) == [(1, "x")]

    def test_quotes_delimiters_and_line_ends_inside_values_are_kept(self, tmp_path: Path) -> None:
        put(tmp_path, b'a,b\n1,"x,""y""\r\nz\n"\n2,\\N\n')
        assert same(tmp_path, dataset("f.csv", AB)) == [(1, 'x,"y"\r\nz\n'), (2, "\\N")]

    @pytest.mark.parametrize("threads", [1, 4, 8])
    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_quoted_line_ends_give_the_same_rows_with_any_number_of_threads(
        self, threads: int, end: bytes, tmp_path: Path
    ) -> None:
        values = ["plain", "with,comma", "new\nline", "cr\r\nlf", 'q"uote', "", "x" * 300, "\n", "a\n1,b,c\n"]
        rows = [(i, values[i * 7 % len(values)]) for i in range(20_000)]
        lines = [b'%d,"%s"' % (i, text.replace('"', '""').encode()) for i, text in rows]
        put(tmp_path, end.join([b"a,b", *lines, b""]))
        scan = source(tmp_path).native_scan(dataset("f.csv", AB), ReadHints())
        connection = connect()
        connection.execute(f"SET threads = {threads}")
        assert sorted(connection.execute(f"SELECT * FROM {scan.relation}").fetchall()) == rows

    @pytest.mark.parametrize("threads", [1, 4])
    def test_double_carriage_returns_are_refused_with_any_number_of_threads(self, threads: int, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\r\r\n" + b"".join(b"%d,x\r\r\n" % i for i in range(50_000)))
        reader = source(tmp_path)
        scan = reader.native_scan(dataset("f.csv", AB), ReadHints())
        connection = connect()
        connection.execute(f"SET threads = {threads}")
        with pytest.raises(duckdb.Error) as caught:
            connection.execute(f"SELECT * FROM {scan.relation}").fetchall()
        explained = reader.explain(caught.value)
        assert explained is not None
        assert explained.code is Code.PZ0722

    def test_tsv_and_other_delimiters(self, tmp_path: Path) -> None:
        put(tmp_path, b"a\tb\n1\tx,y\n", "f.tsv")
        assert same(tmp_path, dataset("f.tsv", AB, format="tsv")) == [(1, "x,y")]
        put(tmp_path, b"a;b\n1;x,y\n")
        assert same(tmp_path, dataset("f.csv", AB, delimiter=";")) == [(1, "x,y")]


BROKEN = (
    ("data", "words"),
    [
        (b"a,b\n1,x\n2\n", "f.csv', line 3: 1 values where the header has 2"),
        (b"a,b\n1,x\n2,y,z\n", "f.csv', line 3: 3 values where the header has 2"),
        (b"a,b\n1,secret\nfoo,secret\n", "f.csv', line 3, column 'a'"),
        (b"a,b\n1,x\x00y\n", "NUL"),
        (b'a,b\n1,"x\n', "never closes"),
        (b'a,b\n1,"x"y\n', "closing quote"),
        (b"a,b\n1,x\xff\n", "UTF-8"),
        (b"a,b\r\n1,x\n2,y\r\n", "line ends"),
        ("a,b\n1,x\n".encode("utf-16"), "UTF-8"),
        (b"\n\na,b\n1,x\n", "empty line"),
    ],
)
BROKEN_IDS = [
    "short row",
    "long row",
    "wrong type",
    "nul",
    "open quote",
    "after quote",
    "latin1",
    "mixed",
    "utf16",
    "blank first",
]


class TestBroken:
    @pytest.mark.parametrize(*BROKEN, ids=BROKEN_IDS)
    def test_a_row_is_found_without_a_contract_too(self, data: bytes, words: str, tmp_path: Path) -> None:
        put(tmp_path, data)
        if words.endswith("column 'a'"):
            return  # any text is a value where no type is declared
        assert words in refused(tmp_path, dataset("f.csv")).message

    @pytest.mark.parametrize(*BROKEN, ids=BROKEN_IDS)
    def test_a_broken_csv_file_is_refused_with_its_place_and_without_its_values(
        self, data: bytes, words: str, tmp_path: Path
    ) -> None:
        put(tmp_path, data)
        error = refused(tmp_path, dataset("f.csv", AB))
        assert error.code is Code.PZ0722
        assert "f.csv" in error.message
        assert words in error.message
        assert not any(value in error.message for value in ("secret", "foo"))

    @pytest.mark.parametrize(
        ("data", "layout"),
        [
            (b'{"a":1}\n{"a":', "ndjson"),
            (b'[{"a":1}]', "ndjson"),
            (b'{"a":1}\n', "array"),
            (b"1\n2\n", "ndjson"),
            (b'{"a":"secret"}\n', "ndjson"),
            (b'{"a":1.5}\n', "ndjson"),
            (b'{"a":1,"a":2}\n', "ndjson"),
            (b"not json\n", "ndjson"),
        ],
    )
    def test_a_broken_json_file_is_refused_without_its_values(self, data: bytes, layout: str, tmp_path: Path) -> None:
        put(tmp_path, data, "f.json")
        error = refused(tmp_path, dataset("f.json", {"a": "INTEGER"}, format="json", layout=layout))
        assert error.code is Code.PZ0722
        assert "f.json" in error.message
        assert "secret" not in error.message

    def test_a_file_that_is_no_parquet_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n" * 10, "f.parquet")
        for contract in (AB, None):
            assert refused(tmp_path, dataset("f.parquet", contract, format="parquet")).code is Code.PZ0722

    @pytest.mark.parametrize("type_", ["INTEGER", "DECIMAL(10,2)"])
    def test_a_fraction_that_the_type_would_lose_is_refused_and_whole_values_are_not(
        self, type_: str, tmp_path: Path
    ) -> None:
        put(tmp_path, b"a\n7.0\n1e2\n 8 \n")
        assert [int(row[0]) for row in read(tmp_path, dataset("f.csv", {"a": type_}))] == [7, 100, 8]
        put(tmp_path, b"a\n1.005\n")
        assert refused(tmp_path, dataset("f.csv", {"a": type_})).code is Code.PZ0722

    def test_the_file_at_fault_is_named_among_many(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "in/good.csv")
        put(tmp_path, b"a,b\n1.5,x\n", "in/bad.csv")
        assert "bad.csv" in refused(tmp_path, dataset("in/*.csv", AB)).message


class TestEmpty:
    @pytest.mark.parametrize("data", [b"", b"\n", b"a,b", b"a,b\n", b"\r\n"])
    def test_files_without_rows_are_no_rows_with_a_contract(self, data: bytes, tmp_path: Path) -> None:
        put(tmp_path, data)
        assert same(tmp_path, dataset("f.csv", AB)) == []

    @pytest.mark.parametrize("data", [b"a,b", b"a,b\n"])
    def test_a_header_alone_is_no_rows_without_a_contract(self, data: bytes, tmp_path: Path) -> None:
        put(tmp_path, data)
        assert same(tmp_path, dataset("f.csv")) == []

    def test_a_zero_byte_file_without_a_contract_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path, b"")
        assert refused(tmp_path, dataset("f.csv")).code is Code.PZ0722
        put(tmp_path, b"", "f.json")
        assert refused(tmp_path, dataset("f.json", format="json")).code is Code.PZ0722

    def test_empty_json_files_are_no_rows_with_a_contract(self, tmp_path: Path) -> None:
        put(tmp_path, b"", "f.json")
        assert same(tmp_path, dataset("f.json", AB, format="json")) == []
        put(tmp_path, b"[]", "f.json")
        assert same(tmp_path, dataset("f.json", AB, format="json", layout="array")) == []

    def test_no_matching_file_fails_when_read_but_not_while_planning(self, tmp_path: Path) -> None:
        assert source(tmp_path).native_scan(dataset("no/*.csv", AB), ReadHints()).mechanism == "read csv"
        error = refused(tmp_path, dataset("no/*.csv", AB))
        assert (error.code, error.message) == (Code.PZ0720, "no file matches 'no/*.csv'")

    def test_no_matching_file_can_be_declared_empty(self, tmp_path: Path) -> None:
        assert same(tmp_path, dataset("no/*.csv", AB, missing="empty")) == []

    @pytest.mark.parametrize("path", ["*.csv", "x.csv"])
    @pytest.mark.parametrize("missing", [{}, {"missing": "empty"}])
    @pytest.mark.parametrize(
        ("kind", "said"), [("link", "is a link that leads to no file"), ("pipe", "is no regular file")]
    )
    def test_what_is_no_file_is_refused_and_not_passed_over(
        self, kind: str, said: str, missing: dict[str, str], path: str, tmp_path: Path
    ) -> None:
        """Its rows would be missing without a word; and nobody waits for a pipe."""
        put(tmp_path, b"a,b\n1,x\n")
        odd = tmp_path / "x.csv"
        if kind == "link":
            odd.symlink_to("gone.csv")
        else:
            os.mkfifo(odd)
        error = refused(tmp_path, dataset(path, AB, **missing))
        assert (error.code, error.message) == (Code.PZ0724, f"'x.csv' {said}")
        odd.unlink()
        odd.mkdir()
        put(tmp_path, b"a,b\n2,y\n", "z.csv")
        (tmp_path / "y.csv").symlink_to("z.csv")
        assert same(tmp_path, dataset("*.csv", AB)) == [(1, "x"), (2, "y"), (2, "y")]

    def test_declared_empty_without_a_contract_is_refused(self, tmp_path: Path) -> None:
        assert refused(tmp_path, dataset("no/*.csv", missing="empty")).code is Code.PZ0720


class TestCompressed:
    CONTENT = b"a,b\n" + b"".join(b"%d,row %d\n" % (i, i * 7919 % 1000) for i in range(20_000))
    ROWS = tuple((i, f"row {i * 7919 % 1000}") for i in range(20_000))

    @staticmethod
    def pack(data: bytes, ending: str) -> bytes:
        return gzip.compress(data) if ending == "gz" else bytes(pa.compress(data, codec="zstd", asbytes=True))

    @pytest.mark.parametrize("ending", ["gz", "zst"])
    def test_compression_is_told_by_the_name_or_the_option(self, ending: str, tmp_path: Path) -> None:
        put(tmp_path, self.pack(self.CONTENT, ending), f"f.csv.{ending}")
        assert sorted(read(tmp_path, dataset(f"f.csv.{ending}", AB))) == list(self.ROWS)
        put(tmp_path, self.pack(self.CONTENT, ending), "plain.csv")
        named = {"gz": "gzip", "zst": "zstd"}[ending]
        assert sorted(read(tmp_path, dataset("plain.csv", AB, compression=named))) == list(self.ROWS)

    @pytest.mark.parametrize("ending", ["gz", "zst"])
    def test_all_frames_are_read(self, ending: str, tmp_path: Path) -> None:
        put(tmp_path, self.pack(b"a,b\n1,x\n", ending) + self.pack(b"2,y\n", ending), f"f.csv.{ending}")
        assert same(tmp_path, dataset(f"f.csv.{ending}", AB)) == [(1, "x"), (2, "y")]

    @pytest.mark.parametrize("ending", ["gz", "zst"])
    @pytest.mark.parametrize("keep", [0.5, -2])
    def test_a_truncated_file_is_refused(self, ending: str, keep: float, tmp_path: Path) -> None:
        packed = self.pack(self.CONTENT, ending)
        put(tmp_path, packed[: int(len(packed) * keep) if keep > 0 else int(keep)], f"f.csv.{ending}")
        error = refused(tmp_path, dataset(f"f.csv.{ending}", AB))
        assert (error.code, f"f.csv.{ending}" in error.message) == (Code.PZ0722, True)

    def test_a_file_that_only_claims_to_be_compressed_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "f.csv.gz")
        assert refused(tmp_path, dataset("f.csv.gz", AB)).code is Code.PZ0722


class TestNumbers:
    def test_big_whole_numbers_in_json_are_exact(self, tmp_path: Path) -> None:
        put(tmp_path, b'{"v":18446744073709551615}\n{"v":9007199254740993}\n', "f.json")
        for contract in ({"v": "HUGEINT"}, {"v": "UBIGINT"}, None):
            assert read(tmp_path, dataset("f.json", contract, format="json")) == [
                (18446744073709551615,),
                (9007199254740993,),
            ]

    def test_a_decimal_that_json_cannot_carry_exactly_is_refused_unless_it_is_a_string(self, tmp_path: Path) -> None:
        wanted = dataset("f.json", {"v": "DECIMAL(38,9)"}, format="json")
        put(tmp_path, b'{"v":"12345678901234567890123456789.123456789"}\n{"v":0.1}\n{"v":7}\n', "f.json")
        shown = connect().execute(
            f"SELECT v::VARCHAR FROM {source(tmp_path).native_scan(wanted, ReadHints()).relation}"
        )
        assert [row[0] for row in shown.fetchall()] == [
            "12345678901234567890123456789.123456789",
            "0.100000000",
            "7.000000000",
        ]
        put(tmp_path, b'{"v":12345678901234567890123456789.123456789}\n', "f.json")
        assert refused(tmp_path, wanted).code is Code.PZ0722


class TestPartitions:
    def test_ten_thousand_small_files_form_a_few_dozen_partitions(self) -> None:
        files = [FileStamp(Path(f"/d/{i:05}.csv"), f"{i:05}.csv", 100 + i % 7, i) for i in range(10_000)]
        groups = group_files(files)
        assert len(groups) <= 48
        assert [file for group in groups for file in group] == files

    def test_big_files_are_partitions_of_their_own(self) -> None:
        files = [FileStamp(Path(f"/d/{i}"), str(i), 10**9, 0) for i in range(8)]
        assert [len(group) for group in group_files(files)] == [1] * 8

    def test_ids_are_stable_unique_and_change_with_the_file(self, tmp_path: Path) -> None:
        for i in range(5):
            put(tmp_path, b"a,b\n%d,x\n" % i, f"in/{i}.csv")
        first = [p.partition_id for p in partitions(tmp_path, dataset("in/*.csv", AB))]
        assert first == [p.partition_id for p in partitions(tmp_path, dataset("in/*.csv", AB))]
        assert len(set(first)) == len(first)
        put(tmp_path, b"a,b\n77,x\n", "in/3.csv")
        assert first != [p.partition_id for p in partitions(tmp_path, dataset("in/*.csv", AB))]

    def test_partitions_together_are_the_whole(self, tmp_path: Path) -> None:
        for i in range(70):
            put(tmp_path, b"a,b\n%d,x\n" % i, f"in/{i}.csv")
        wanted = dataset("in/*.csv")
        rows = [
            row
            for partition in partitions(tmp_path, wanted)
            for row in connect().execute(f"SELECT * FROM {partition.native_scan().relation}").fetchall()
        ]
        assert sorted(rows) == sorted(read(tmp_path, wanted)) == [(i, "x") for i in range(70)]

    def test_the_schema_is_found_once_and_pinned(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n" + b"x" * 100 + b",1\n", "in/1.csv")
        put(tmp_path, b"a,b\n1,1\n", "in/2.csv")
        reader = source(tmp_path)
        wanted = dataset("in/*.csv")
        for partition in partitions(tmp_path, wanted):
            assert partition.schema.columns[0].type == "VARCHAR"
            restored = reader.restore_partition(wanted, ReadHints(), partition.spec)
            assert restored == partition

    def test_a_pinned_partition_is_refused_when_its_file_changed(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n")
        (partition,) = partitions(tmp_path, dataset("f.csv", AB))
        put(tmp_path, b"a,b\n1,x\n2,y\n")
        with pytest.raises(PermanentError, match=r"file 'f\.csv' changed since the run that is continued") as caught:
            source(tmp_path).restore_partition(dataset("f.csv", AB), ReadHints(), partition.spec)
        assert caught.value.code is Code.PZ0721

    def test_a_file_that_changes_while_it_is_read_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(1000)))
        (partition,) = partitions(tmp_path, dataset("f.csv", AB))
        batches = partition.read(BatchOptions(max_rows=100), CancelToken())
        next(batches)
        with (tmp_path / "f.csv").open("ab") as growing:
            growing.write(b"1000,x\n")
        with pytest.raises(PermanentError, match=r"file 'f\.csv' changed while it was read") as caught:
            list(batches)
        assert caught.value.code is Code.PZ0721

    def test_a_cancelled_read_stops_as_cancelled(self, tmp_path: Path) -> None:
        from pz.errors import Cancelled

        put(tmp_path, b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(1000)))
        (partition,) = partitions(tmp_path, dataset("f.csv", AB))
        cancel = CancelToken()
        cancel.cancel()
        with pytest.raises(Cancelled):
            list(partition.read(BatchOptions(max_rows=10), cancel))

    def test_a_cancellation_leaves_a_finished_read_alone(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n")
        (partition,) = partitions(tmp_path, dataset("f.csv", AB))
        cancel = CancelToken()
        assert sum(batch.num_rows for batch in partition.read(BatchOptions(), cancel)) == 1
        cancel.cancel()  # its connection is closed by now, and a closed one refuses to be interrupted


class TestHintsAndWindows:
    def test_columns_and_filters_are_pushed_on_both_ways(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n2,y\n3,x\n")
        hints = ReadHints(columns=("a",), predicate="b = 'x' OR a = 2")
        assert read(tmp_path, dataset("f.csv", AB), hints) == [(1,), (2,), (3,)]
        (partition,) = source(tmp_path).plan_read(dataset("f.csv", AB), ReadHints(columns=("b",), predicate="a > 1"))
        rows = [row for batch in partition.read(BatchOptions(), CancelToken()) for row in batch.to_pylist()]
        assert rows == [{"b": "y"}, {"b": "x"}]

    def test_a_window_is_applied_and_rows_without_a_cursor_are_left_to_the_engine(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n2,y\n3,z\n,n\n")
        wanted = DatasetSpec(
            "files", "data", {"path": "f.csv"}, AB, "a", "int", lower=Bound("1", False), upper=Bound("2", True)
        )
        assert same(tmp_path, wanted) == [(2, "y"), (None, "n")]

    def test_the_probe_tells_the_highest_cursor_and_the_rows_without_one(self, tmp_path: Path) -> None:
        put(tmp_path, b"t,n\n2024-01-02 03:04:05.5,1\n2023-01-01 00:00:00,2\n,3\n")
        probe = source(tmp_path).probe(DatasetSpec("files", "d", {"path": "f.csv"}, None, "t"))
        assert (probe.upper, probe.null_cursors) == ("2024-01-02T03:04:05.500000", 1)
        assert probe.bytes == (tmp_path / "f.csv").stat().st_size

    def test_the_probe_counts_parquet_rows_from_the_footers(self, tmp_path: Path) -> None:
        for i in range(3):
            connect().execute(f"COPY (SELECT * FROM range({i + 1}) AS r(a)) TO '{tmp_path}/{i}.parquet'")
        assert source(tmp_path).probe(dataset("*.parquet", format="parquet")).rows == 6


class TestRoot:
    def test_a_relative_path_may_not_leave_a_declared_root(self, tmp_path: Path) -> None:
        put(tmp_path, b"a\n1\n", "data2/f.csv")
        (tmp_path / "data").mkdir()
        root = FileRoot.of(tmp_path, "data")
        for path in ("../data2/f.csv", "../f.csv", "x/../../data2/*.csv"):
            with pytest.raises(PermanentError) as caught:
                root.resolve(path)
            assert caught.value.code is Code.PZ0365
        assert root.resolve(str(tmp_path / "data2/f.csv")) == tmp_path / "data2/f.csv"

    def test_a_link_may_not_lead_out_of_a_declared_root(self, tmp_path: Path) -> None:
        put(tmp_path, b"a\n1\n", "outside/f.csv")
        (tmp_path / "data").mkdir()
        (tmp_path / "data/link").symlink_to(tmp_path / "outside")
        with pytest.raises(PermanentError) as caught:
            FileRoot.of(tmp_path, "data").list("link/f.csv")
        assert caught.value.code is Code.PZ0365

    def test_without_a_root_paths_start_at_the_project_whatever_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path, b"a,b\n1,x\n")
        monkeypatch.chdir(os.sep)
        assert read(tmp_path, dataset("f.csv", AB)) == [(1, "x")]

    def test_hidden_files_do_not_match_a_glob(self, tmp_path: Path) -> None:
        put(tmp_path, b"a,b\n1,x\n", "in/a.csv")
        put(tmp_path, b"a,b\n2,y\n", "in/.b.csv")
        assert same(tmp_path, dataset("in/*", AB)) == [(1, "x")]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"format": "xlsx"}, Code.PZ0361),
        ({"format": "parquet", "delimiter": ";"}, Code.PZ0362),
        ({"format": "csv", "layout": "array"}, Code.PZ0362),
        ({"delimiter": ";;"}, Code.PZ0362),
        ({"delimiter": "\n"}, Code.PZ0362),
        ({"format": "parquet", "compression": "zstd"}, Code.PZ0362),
        ({"null_text": [""]}, Code.PZ0362),
    ],
)
def test_options_that_do_not_fit_the_format_are_refused(options: dict[str, object], code: Code, tmp_path: Path) -> None:
    put(tmp_path, b"a,b\n1,x\n")
    with pytest.raises(PermanentError) as caught:
        source(tmp_path).native_scan(dataset("f.csv", AB, **options), ReadHints())
    assert caught.value.code is code


def test_a_json_file_may_be_declared_as_not_compressed(tmp_path: Path) -> None:
    (tmp_path / "plain.json").write_text('{"id": 1}\n')
    assert read(tmp_path, dataset("plain.json", {"id": "bigint"}, format="json", compression="none")) == [(1,)]


def test_batches_keep_to_the_bytes_and_the_rows_that_are_asked_for(tmp_path: Path) -> None:
    text = "id,note\n" + "".join(f"{n},{'x' * 500}\n" for n in range(20_000))
    wanted = dataset(put(tmp_path, text.encode()), {"id": "bigint", "note": "varchar"})
    (part,) = partitions(tmp_path, wanted)
    wide = list(part.read(BatchOptions(target_bytes=4 * 2**20), CancelToken()))
    assert max(batch.nbytes for batch in wide) <= 4 * 2**20
    assert len(wide) <= 4
    assert [n for batch in wide for n in batch.column("id").to_pylist()] == list(range(20_000))
    assert max(batch.num_rows for batch in part.read(BatchOptions(max_rows=1_000), CancelToken())) == 1_000
