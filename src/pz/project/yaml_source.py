"""YAML as we read it: a tree of blocks, lists and scalars that all know their line.

Only *plain* scalars are typed: whole numbers of 64 bits, then decimal numbers, then exactly ``true`` and ``false``.
Everything else, quoted and block scalars included, is text; so ``off``, ``no``, ``null`` and ``~`` are words. A whole
number that would not come back as it was written (``0123``, or more digits than 64 bits hold) stays text as well:
identifiers and zip codes keep their zeros. A key without a value is an empty scalar and means "the default".

Anchors and aliases work, and so does the merge key ``<<`` (one block or a list of them; keys written out win, then the
earlier block). Tags other than ``!!str``, ``!!map`` and ``!!seq`` are refused, as are several documents in one file,
keys that are no scalars, and a key given twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.errors import Code, Problem, Problems, ProjectError
from pz.frozen import frozen

if TYPE_CHECKING:
    import yaml

__all__ = [
    "MAX_DEPTH",
    "MAX_VALUES",
    "Block",
    "Item",
    "Listing",
    "Scalar",
    "from_python",
    "parse_yaml",
    "plain_value",
    "read_text",
    "read_yaml",
]

MAX_VALUES = 1_000_000
MAX_DEPTH = 100

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_STR_TAGS = {"tag:yaml.org,2002:str", "!"}
_ALLOWED_TAGS = {None, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"} | _STR_TAGS


@frozen
class Scalar:
    """One value. ``text`` is as written, ``value`` as typed, ``plain`` whether it stood unquoted."""

    value: str | int | float | bool
    text: str
    plain: bool
    line: int | None

    @property
    def empty(self) -> bool:
        """Whether nothing was written: ``key:`` alone."""
        return self.plain and self.text == ""

    @property
    def kind(self) -> str:
        """What it is, for messages; never the value itself."""
        if self.empty:
            return "empty"
        if isinstance(self.value, str):
            return "text" if self.plain else "quoted text"
        return "true or false" if isinstance(self.value, bool) else "a number"


@frozen
class Listing:
    """A list."""

    items: tuple[Item, ...]
    line: int | None
    kind: str = "a list"


@frozen
class Block:
    """A mapping; keys are text as written. ``key_lines`` has the line of every key."""

    entries: Mapping[str, Item]
    line: int | None
    key_lines: Mapping[str, int | None] = field(default_factory=dict)
    kind: str = "a mapping"

    def line_of(self, key: str) -> int | None:
        """The line of a key, or of the block itself."""
        return self.key_lines.get(key, self.line)

    def at(self, line: int | None) -> Block:
        """The same block, found on the line of its key rather than of its first entry."""
        return replace(self, line=line)


Item = Scalar | Listing | Block


def typed(text: str) -> str | int | float | bool:
    """The value of a plain scalar."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text) and len(text) <= 20 and -(2**63) <= int(text) < 2**63:
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def plain_value(item: Item) -> Any:
    """The item as str, int, float, bool, list and dict. Keys without a value are left out: they mean "default"."""
    if isinstance(item, Scalar):
        return item.value
    if isinstance(item, Listing):
        return [plain_value(entry) for entry in item.items]
    return {
        key: plain_value(entry)
        for key, entry in item.entries.items()
        if not (isinstance(entry, Scalar) and entry.empty)
    }


def from_python(value: object, line: int | None) -> Item:
    """The same tree from values of a template call; None becomes an empty scalar. TypeError for anything else."""
    if value is None:
        return Scalar("", "", True, line)
    if isinstance(value, str):
        return Scalar(str(value), str(value), False, line)
    if isinstance(value, bool):
        return Scalar(value, "true" if value else "false", True, line)
    if isinstance(value, int | float):
        return Scalar(value, repr(value), True, line)
    if isinstance(value, list | tuple):
        return Listing(tuple(from_python(entry, line) for entry in value), line)
    if isinstance(value, Mapping):
        entries = {_key_text(key): from_python(entry, line) for key, entry in value.items()}
        return Block(entries, line, dict.fromkeys(entries, line))
    raise TypeError(f"{type(value).__name__} is no option value")


def _key_text(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise TypeError(f"{type(key).__name__} is no key")


def read_text(path: Path, file: str, problems: Problems, *, code: Code = Code.PZ0101) -> str | None:
    """Read a UTF-8 file, line endings made LF, a byte-order mark dropped; None after a problem was reported.

    NUL and invalid UTF-8 are refused with the line; a file that may not be read is PZ0531.
    """
    try:
        raw = path.read_bytes()
    except PermissionError:
        problems.error(Code.PZ0531, f"'{file}' may not be read: permission denied", file=file)
        return None
    except OSError as error:
        problems.error(code, f"'{file}' cannot be read: {error.strerror}", file=file)
        return None
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.error(code, f"'{file}' is saved as UTF-16", file=file, line=1, hint="save the file as UTF-8")
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.error(code, f"'{file}' is not UTF-8", file=file, line=line, hint="save the file as UTF-8")
        return None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        problems.error(code, f"'{file}' holds a NUL character", file=file, line=line, hint="remove the character")
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_yaml(path: Path, file: str, problems: Problems) -> Block | None:
    """Read one YAML file whose root is a mapping; None after its problems were reported. An empty file is ``{}``."""
    text = read_text(path, file, problems)
    if text is None:
        return None
    return parse_yaml(text, file, problems)


def parse_yaml(text: str, file: str, problems: Problems) -> Block | None:
    """Parse YAML text whose root is a mapping; None after PZ0101 (file and line) was reported.

    A key given twice is reported and its first value kept, so that the rest of the file is still checked.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = _Composer(file, yaml.parse(text, Loader=loader), problems).document()
    except ProjectError as error:
        problems.extend(error.problems)
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problems.add(_problem(file, line, f"not valid YAML: {error.problem or error.context}"))
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(_problem(file, line, "not valid YAML: a control character is not allowed here"))
        return None
    except (yaml.YAMLError, UnicodeError):
        problems.add(_problem(file, None, "not valid YAML"))
        return None
    if isinstance(root, Scalar) and root.empty:
        return Block({}, root.line)
    if not isinstance(root, Block):
        problems.add(_problem(file, root.line, f"the file must hold a mapping of keys, not {root.kind}"))
        return None
    return root


def _problem(file: str, line: int | None, message: str, hint: str | None = None) -> Problem:
    return Problem(Code.PZ0101, message, file, line, hint or f"correct '{file}'")


def _refuse(file: str, line: int | None, message: str, hint: str | None = None) -> ProjectError:
    return ProjectError(_problem(file, line, message, hint))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


class _Composer:
    """Builds the tree from the parser's events, counting values as if every alias were written out."""

    def __init__(self, file: str, events: Iterable[yaml.Event], problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._events: Iterator[yaml.Event] = iter(events)
        self._anchors: dict[str, tuple[Item, int]] = {}
        self._open: set[str] = set()
        self._count = 0

    def document(self) -> Item:
        """The single document of the stream; an empty scalar when there is none."""
        import yaml

        root: Item | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _refuse(
                        self._file, _line(event), "a second document starts here", "keep one document per file"
                    )
                root = self._node(next(self._events), 0)
        return root if root is not None else Scalar("", "", True, 1)

    def _node(self, event: yaml.Event, depth: int) -> Item:
        import yaml

        line = _line(event)
        if depth > MAX_DEPTH:
            raise _refuse(self._file, line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", line)
        before = self._count
        self._charge(1, line)
        tag, anchor = getattr(event, "tag", None), getattr(event, "anchor", None)
        if tag not in _ALLOWED_TAGS:
            raise _refuse(self._file, line, "a tag is not allowed here", "remove the tag (!...)")
        if anchor is not None:
            self._open.add(anchor)
        item = self._content(event, line, depth)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = (item, self._count - before)
        return item

    def _content(self, event: yaml.Event, line: int, depth: int) -> Item:
        import yaml

        if isinstance(event, yaml.SequenceStartEvent):
            return self._listing(line, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._block(line, depth)
        assert isinstance(event, yaml.ScalarEvent)  # the parser yields nothing else inside a document
        text: str = event.value
        plain = bool(event.implicit[0]) and event.tag not in _STR_TAGS
        return Scalar(typed(text) if plain else text, text, plain, line)

    def _alias(self, anchor: str, line: int) -> Item:
        if anchor in self._open:
            raise _refuse(self._file, line, f"alias '*{anchor}' contains itself")
        if anchor not in self._anchors:
            raise _refuse(self._file, line, f"alias '*{anchor}' has no anchor above it")
        item, size = self._anchors[anchor]
        self._charge(size, line)
        return item

    def _charge(self, size: int, line: int) -> None:
        self._count += size
        if self._count > MAX_VALUES:
            raise _refuse(self._file, line, f"more than {MAX_VALUES} values once aliases are written out")

    def _listing(self, line: int, depth: int) -> Listing:
        import yaml

        items: list[Item] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Listing(tuple(items), line)

    def _block(self, line: int, depth: int) -> Block:
        import yaml

        entries: dict[str, Item] = {}
        lines: dict[str, int | None] = {}
        merged: list[Block] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar):
                raise _refuse(self._file, key.line, f"a key must be a plain word, not {key.kind}")
            if key.plain and key.text == "<<":
                merged.extend(self._merge_sources(value))
                continue
            if key.text in entries:
                twice = f"key '{key.text}' is given twice (first on line {lines[key.text]})"
                self._problems.add(_problem(self._file, key.line, twice, "keep one of them"))
                continue
            entries[key.text] = value
            lines[key.text] = key.line
        for source in merged:
            for name, value in source.entries.items():
                if name not in entries:
                    entries[name] = value
                    lines[name] = source.line_of(name)
        return Block(entries, line, lines)

    def _merge_sources(self, value: Item) -> list[Block]:
        sources = value.items if isinstance(value, Listing) else (value,)
        blocks = [source for source in sources if isinstance(source, Block)]
        if len(blocks) != len(sources):
            raise _refuse(self._file, value.line, "'<<' takes a mapping or a list of mappings")
        return blocks
