"""The two things our templates add to Jinja's syntax, and the instruments that rendering needs.

Arguments of a call may be spelled ``name: value`` as well as ``name=value``, and inside braces a bare name before a
colon is a key: ``sink('lake', 'orders', strategy: 'append', retry: { max_attempts: 3 })``. Calls may span lines.

The parsed template is then instrumented: our calls learn their line, a repeated argument becomes a problem instead of a
Python syntax error, loops and macros report every pass to the meter, and text is marked with the line it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

from jinja2 import TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.visitor import NodeTransformer

from pz.frozen import frozen
from pz.project.template_marks import LINE_ARGUMENT, line_mark
from pz.sqltext import unfit

__all__ = ["ColonArguments", "Repeated", "instrument"]


class ColonArguments(Extension):
    """Lets arguments and keys be written with a colon."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Rewrite ``name :`` to ``name =`` in call brackets, and to a text key in braces."""
        tokens = list(stream)
        brackets: list[str] = []
        for position, token in enumerate(tokens):
            before = tokens[position - 1] if position else None
            after = tokens[position + 1] if position + 1 < len(tokens) else None
            inside = brackets[-1] if brackets else ""
            _follow(brackets, token, before)
            if inside == "braces" and _starts_pair(token, before, after, "lbrace"):
                yield Token(token.lineno, "string", token.value)
            elif token.type == "colon" and inside == "call" and _ends_name(tokens, position):
                yield Token(token.lineno, "assign", "=")
            else:
                yield token


def _follow(brackets: list[str], token: Token, before: Token | None) -> None:
    if token.type in ("variable_begin", "block_begin"):
        brackets.clear()
    elif token.type == "lparen":
        callable_before = before is not None and before.type in ("name", "rparen", "rbracket")
        brackets.append("call" if callable_before else "group")
    elif token.type == "lbrace":
        brackets.append("braces")
    elif token.type == "lbracket":
        brackets.append("list")
    elif token.type in ("rparen", "rbrace", "rbracket") and brackets:
        brackets.pop()


def _starts_pair(token: Token, before: Token | None, after: Token | None, opening: str) -> bool:
    """Whether a name stands right after the bracket or a comma, and right before a colon."""
    return (
        token.type == "name"
        and before is not None
        and before.type in (opening, "comma")
        and after is not None
        and after.type == "colon"
    )


def _ends_name(tokens: list[Token], colon: int) -> bool:
    return colon >= 2 and _starts_pair(tokens[colon - 1], tokens[colon - 2], tokens[colon], "lparen")


SomeNode = TypeVar("SomeNode", bound=nodes.Node)
Repeating = TypeVar("Repeating", nodes.For, nodes.Macro, nodes.CallBlock)


@frozen
class Repeated:
    """An argument that a call was given twice."""

    function: str
    argument: str
    line: int


def instrument(template: nodes.Template, functions: frozenset[str]) -> tuple[Repeated, ...]:
    """Instrument a parsed template in place; TemplateSyntaxError for tags that reach for other templates."""
    instruments = _Instruments(functions)
    instruments.visit(template)
    return tuple(instruments.repeated)


class _Instruments(NodeTransformer):
    def __init__(self, functions: frozenset[str]) -> None:
        self._functions = functions
        self._captured = 0
        self.repeated: list[Repeated] = []

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        self.generic_visit(node)
        name = node.node.name if isinstance(node.node, nodes.Name) else ""
        seen: set[str] = set()
        for keyword in list(node.kwargs):
            if keyword.key in seen:
                self.repeated.append(Repeated(name, keyword.key, keyword.lineno))
                node.kwargs.remove(keyword)
            seen.add(keyword.key)
        if name in self._functions:
            node.kwargs.append(nodes.Keyword(LINE_ARGUMENT, nodes.Const(node.node.lineno), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _environment_call("concatenate", node.nodes, node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        return _metered(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return _metered(self._capturing(node))

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return _metered(self._capturing(node))

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.Node:
        return self._capturing(node)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        return self._capturing(node)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        fault = unfit(node.value)
        if fault is not None:
            raise TemplateSyntaxError(f"a text {fault}", node.lineno)
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise TemplateSyntaxError("the number is too large; write a smaller number, or text", node.lineno)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        if not self._captured:
            node.data = line_mark(node.lineno) + node.data
        return node

    def _refuse_other_templates(self, node: nodes.Node) -> nodes.Node:
        raise TemplateSyntaxError("a pipeline cannot include, import or extend another file", node.lineno)

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _refuse_other_templates

    def _capturing(self, node: SomeNode) -> SomeNode:
        """Text below ``node`` becomes a value that the template may look into: leave it without marks."""
        self._captured += 1
        self.generic_visit(node)
        self._captured -= 1
        return node


def _metered(node: Repeating) -> Repeating:
    """Make every pass through the body cost one step and the length of its fixed text."""
    size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    call = _environment_call("spend", [nodes.Const(1 + size // 64)], node.lineno)
    node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))
    return node


def _environment_call(method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method, lineno=line), arguments, [], None, None, lineno=line)
