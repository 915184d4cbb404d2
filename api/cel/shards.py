"""Parse shard selectors (KEP-5866), such as

    shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')

The text is CEL, of which only ``shardRange()`` and ``||`` are allowed; it is never evaluated. Source: apiserver
``pkg/sharding``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubechronicle.api.cel.errors import CompileError
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.syntax.lexer import ExpressionSource
from kubechronicle.api.cel.syntax.parser import parse as parse_cel
from kubechronicle.api.cel.values import UInt
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.selectors.shard_selectors import NAMESPACE, UID, ShardSelector

_END: Final = "0x10000000000000000"
"""2**64, the only bound with 17 digits."""
# The number of each kind of expression in cel-go.
_KINDS: Final[dict[type[ast.Node], int]] = {
    ast.CallExpression: 1, ast.Comprehension: 2, ast.Ident: 3, ast.ListNode: 4, ast.Literal: 5, ast.MapNode: 6,
    ast.Select: 7, ast.StructNode: 8,
}  # fmt: skip
_GO_TYPES: Final[dict[type, str]] = {
    bool: "bool", bytes: "[]uint8", float: "float64", int: "int64", UInt: "uint64", type(None): "structpb.NullValue",
}  # fmt: skip


def parse(text: str) -> ShardSelector:
    """Return the selector of a text. ValueError with kube-apiserver's message."""
    if not text.strip():
        raise ValueError("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    try:
        tree = parse_cel(ExpressionSource(text.strip()), {})
    except CompileError as error:
        raise ValueError(f"CEL parse error: {error.issues[0].message}") from None
    found = list(_ranges(tree))
    for field, _ in found[1:]:
        if field != found[0][0]:
            raise ValueError(
                f"all shard ranges must use the same field, got {go_quote(found[0][0])} and {go_quote(field)}"
            )
    return ShardSelector(found[0][0], tuple(limits for _, limits in found))


def _ranges(node: ast.Node) -> Iterator[tuple[str, tuple[int, int]]]:
    if not isinstance(node, ast.CallExpression):
        raise ValueError(f"unexpected expression kind {_kind(node)}; expected shardRange() call or || operator")
    if node.function == "_||_":
        for each in node.args:
            yield from _ranges(each)
    elif node.function == "shardRange":
        yield _range(node)
    else:
        raise ValueError(f"unsupported function {go_quote(node.function)}; only shardRange() and || are allowed")


def _range(call: ast.CallExpression) -> tuple[str, tuple[int, int]]:
    if len(call.args) != 3:
        raise ValueError(f"shardRange() requires exactly 3 arguments, got {len(call.args)}")
    path, first, last = call.args
    field = _path(path)
    if field not in (UID, NAMESPACE):
        raise ValueError(f"unsupported field path {go_quote(field)}; supported: {UID}, {NAMESPACE}")
    start, end = _bound(first, "hexStart"), _bound(last, "hexEnd")
    if int(start, 16) >= int(end, 16):
        raise ValueError(f"shard range start {start} must be less than end {end}")
    return field, (int(start, 16), int(end, 16))


def _path(node: ast.Node) -> str:
    if isinstance(node, ast.Ident):
        return node.name
    if isinstance(node, ast.Select):
        return f"{_path(node.operand)}.{node.field}"
    raise ValueError(
        "shardRange() first argument: "
        f"expected field path (e.g. object.metadata.uid), got expression kind {_kind(node)}"
    )


def _bound(node: ast.Node, name: str) -> str:
    if not isinstance(node, ast.Literal):
        raise ValueError(f"{name} must be a string literal (e.g. '0xff'), got expression kind {_kind(node)}")
    text = node.value
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string literal, got {_GO_TYPES.get(type(text), type(text).__name__)}")
    digits = text.removeprefix("0x")
    if digits == text:
        raise ValueError(f"{name} must have '0x' prefix, got {go_quote(text)}")
    if not digits:
        raise ValueError(f"{name}: hex value is required after '0x'")
    if len(digits) > 17:
        raise ValueError(f"{name}: hex value too long ({len(digits)} chars, max 17): {go_quote(digits)}")
    if bad := re.search("[^0-9a-f]", digits):
        raise ValueError(f"{name}: invalid hex character {go_quote(bad[0])} in {go_quote(text)}")
    if len(digits) == 17 and text != _END:
        raise ValueError(f"{name}: 17-digit hex value must be '{_END}' (2^64), got {go_quote(text)}")
    if len(digits) < 16:
        padded = go_quote(f"0x{digits:0>16}")
        raise ValueError(
            f"{name} must be a 0x-prefixed 16-digit hex value, got {go_quote(text)} (did you mean {padded}?)"
        )
    return text


def _kind(node: ast.Node) -> int:
    return _KINDS.get(type(node), 0)
