"""``${NAME}`` in values, after parsing: whatever a secret holds, it cannot change the structure around it.

``$${`` stands for a literal ``${``. A variable that is not set is PZ0103 and its reference stays as text, so that the
rest of the file is still checked. A plain scalar is typed again after substitution, but only when the typed value
prints back identically: ``5432`` becomes a number; ``0123``, ``1.10`` and ``1e5`` stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pz.errors import Code, Problems
from pz.project.yaml_source import Block, Item, Listing, Scalar, typed
from pz.sqltext import unfit

__all__ = ["has_reference", "interpolate", "references"]

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def interpolate(item: Item, environ: Mapping[str, str], file: str, problems: Problems) -> Item:
    """Return the item with every reference in its values (never in keys) replaced, at any depth."""
    if isinstance(item, Scalar):
        return _scalar(item, environ, file, problems)
    if isinstance(item, Listing):
        return Listing(tuple(interpolate(entry, environ, file, problems) for entry in item.items), item.line)
    entries = {key: interpolate(entry, environ, file, problems) for key, entry in item.entries.items()}
    return Block(entries, item.line, item.key_lines)


def has_reference(text: str) -> bool:
    """Whether the text holds a ``${NAME}`` that would be substituted elsewhere."""
    return any(match[2] for match in _REFERENCE.finditer(text))


def references(item: Item, path: str = "") -> Iterator[tuple[str, int | None]]:
    """The dotted paths (and lines) of all values below ``item`` that hold a reference."""
    if isinstance(item, Scalar):
        if has_reference(item.text):
            yield path, item.line
    elif isinstance(item, Listing):
        for entry in item.items:
            yield from references(entry, path)
    else:
        for key, entry in item.entries.items():
            yield from references(entry, f"{path}.{key}" if path else key)


def _scalar(item: Scalar, environ: Mapping[str, str], file: str, problems: Problems) -> Scalar:
    if "${" not in item.text:
        return item

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        name = match[2]
        if name not in environ:
            problems.error(
                Code.PZ0103,
                f"environment variable '{name}' is not set",
                file=file,
                line=item.line,
                hint=f"set {name} in the environment, or write $${{{name}}} for the literal text",
            )
            return match[0]
        fault = unfit(environ[name])
        if fault is not None:
            message = f"environment variable '{name}' {fault}"
            problems.error(Code.PZ0103, message, file=file, line=item.line, hint=f"set {name} to text in UTF-8")
            return match[0]
        return environ[name]

    text = _REFERENCE.sub(replacement, item.text)
    return Scalar(_retyped(text) if item.plain else text, text, item.plain and text != "", item.line)


def _retyped(text: str) -> str | int | float | bool:
    value = typed(text)
    printed = ("true" if value else "false") if isinstance(value, bool) else repr(value)
    return value if printed == text else text
