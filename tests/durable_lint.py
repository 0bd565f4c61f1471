"""Find writes that must survive a crash and stand outside a durable step.

A call counts when it makes, replaces or removes a file, or commits, or sends DDL or COPY as constant text. It is fine inside
``with step(Step.X):`` or ``with transaction(cursor, Step.X):`` of the same function, on a ``tx`` (a transaction that a caller
opened in its step), or when its line, or the ``def`` line of its function, says ``# durable: ok - <reason>``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

EXEMPT = re.compile(r"#\s*durable:\s*ok\s*-\s*\S")
STATEMENT = re.compile(
    r"^\s*(?:CREATE\s+(?!(?:OR\s+REPLACE\s+)?(?:TEMP|TEMPORARY|SECRET)\b)|DROP\b|ALTER\b|TRUNCATE\b|COPY\b|COMMIT\b)",
    re.I,
)
SENDERS = {"execute", "executemany", "executescript", "sql", "query"}
OS_VERBS = {"replace", "rename", "renames", "remove", "unlink", "rmdir", "truncate", "ftruncate", "link", "symlink"}
PATH_VERBS = {"rename", "unlink", "rmdir", "write_text", "write_bytes", "hardlink_to", "symlink_to"}
SHUTIL_VERBS = {"move", "rmtree", "copyfile", "copy", "copy2", "copytree"}


@dataclass(frozen=True)
class Finding:
    """A durable call: where, what, and whether a comment lets it pass."""

    file: str
    line: int
    what: str
    exempt: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def lint(text: str, file: str = "<snippet>") -> list[Finding]:
    """All durable calls outside of a step, exempted ones marked."""
    tree = ast.parse(text)
    constants = dict(_constants(tree))
    lines = text.splitlines()
    excused = _excused_lines(tree, lines)
    found = []
    for call in _outside_steps(tree.body):
        what = _durable(call, constants)
        if what:
            covered = "\n".join(lines[call.lineno - 1 : call.end_lineno])
            found.append(Finding(file, call.lineno, what, bool(EXEMPT.search(covered)) or call.lineno in excused))
    return found


def _excused_lines(tree: ast.Module, lines: list[str]) -> set[int]:
    """The lines of functions whose signature carries a reason."""
    excused: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            signature = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
            if EXEMPT.search(signature):
                excused |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return excused


def lint_tree(root: Path) -> list[Finding]:
    """The same for every module below ``root``; `durable.py` itself is where the verbs live."""
    return [
        finding
        for path in sorted(root.rglob("*.py"))
        if path.name != "durable.py"
        for finding in lint(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    ]


def _outside_steps(nodes: Sequence[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.With) and any(_is_step(item.context_expr) for item in node.items):
            # A function defined in here runs later, outside of the step.
            yield from _outside_steps([d for d in ast.walk(node) if isinstance(d, ast.FunctionDef)])
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _outside_steps(list(ast.iter_child_nodes(node)))


def _is_step(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name == "step" or (name == "transaction" and any(_names_a_step(argument) for argument in node.args))


def _names_a_step(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Step"


def _durable(call: ast.Call, constants: dict[str, str]) -> str | None:
    function = call.func
    if isinstance(function, ast.Name):
        return "open for writing" if function.id == "open" and _writes(_mode(call, 1)) else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    return _module_verb(owner, function.attr) or _method(call, function.attr, owner, constants)


def _module_verb(owner: str, verb: str) -> str | None:
    if (owner == "os" and verb in OS_VERBS) or (owner == "shutil" and verb in SHUTIL_VERBS):
        return f"{owner}.{verb}"
    return None


def _method(call: ast.Call, verb: str, owner: str, constants: dict[str, str]) -> str | None:
    if verb in PATH_VERBS:
        return verb
    if verb == "replace" and len(call.args) == 1 and not call.keywords:
        return "Path.replace"  # str.replace takes two, dataclasses.replace keywords
    if verb == "open" and owner not in {"os", "gzip"} and _writes(_mode(call, 0)):
        return "open for writing"
    if verb == "commit" and not call.args:
        return "commit"
    if verb in SENDERS and owner != "tx" and call.args and _sends_ddl(_text(call.args[0], constants)):
        return f"{verb} of DDL, COPY or COMMIT"
    return None


def _mode(call: ast.Call, position: int) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[position : position + 1]
    return str(given[0].value) if given and isinstance(given[0], ast.Constant) else ""


def _writes(mode: str) -> bool:
    return len(mode) <= 4 and bool(set(mode) & set("wax+")) and set(mode) <= set("rwaxbt+")


def _sends_ddl(text: str) -> bool:
    return any(STATEMENT.match(statement) for statement in text.split(";"))


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    """The constant parts of a text; a placeholder stands for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return _text(node.left, constants)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _text(node.func.value, constants)
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    return ""


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names bound to text anywhere in the module, so that ``query = "..."; execute(query)`` is seen through."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            text = _text(node.value, {})
            for target in targets:
                if text and isinstance(target, ast.Name):
                    yield target.id, text
