"""The tree of an expression. The parser makes it with macros expanded; the checker adds types.

``offset`` is the place that an error about the node names, in characters: the ``(`` or operator of a call, the dot of a
selection. ``type`` and a call's ``overloads`` are set by the checker.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.cel.types import ERROR, CelType, Overload


class Node:
    """Any part of an expression. ``depth``: the nesting of operators and selections in it, as parsed."""

    __slots__ = ("depth", "offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.depth = 0
        self.type: CelType = ERROR


class Literal(Node):
    """A constant: bool, bytes, double, int, null, string, uint; after constant folding any value."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A name. A leading dot means a global variable; after checking, every global variable has one.

    ``constant``: set by the checker; the name stands for ``value``.
    """

    __slots__ = ("constant", "name", "value")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.constant = False
        self.value: Any = None


class Select(Node):
    """``operand.field``, or ``has(operand.field)`` if ``test_only``."""

    __slots__ = ("field", "operand", "test_only")

    def __init__(self, offset: int, operand: Node, field: str, test_only: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only


class CallExpression(Node):
    """``function(args)``, ``target.function(args)``, or an operator with a function name such as ``_+_``."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[Overload, ...] = ()


class ListNode(Node):
    """``[a, ?b]``; ``optional`` holds the indexes of the elements with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional


class MapEntry:
    """One ``key: value`` of a map or ``field: value`` of an object; ``?key: value`` if optional."""

    __slots__ = ("key", "offset", "optional", "value")

    def __init__(self, offset: int, key: Any, value: Node, optional: bool) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.optional = optional


class MapNode(Node):
    """``{key: value}``; each entry's key is a Node."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[MapEntry]) -> None:
        super().__init__(offset)
        self.entries = entries


class StructNode(Node):
    """``Name{field: value}``; each entry's key is the field's name."""

    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: list[MapEntry]) -> None:
        super().__init__(offset)
        self.name = name
        self.entries = entries


class Keep(Node):
    """A part that occurs twice in an expansion. It is evaluated here, and its value is kept for its `Kept`."""

    __slots__ = ("node", "slot")

    def __init__(self, node: Node) -> None:
        super().__init__(node.offset)
        self.node = node
        self.slot = 0


class KeptExpression(Node):
    """The value of a `Keep` evaluated before. It costs the same as a second evaluation."""

    __slots__ = ("keep",)

    def __init__(self, keep: Keep) -> None:
        super().__init__(keep.offset)
        self.keep = keep


class Comprehension(Node):
    """A fold over a list or map: the expansion of every macro with a loop.

    ``accu`` begins as ``init``. For each element, while ``condition`` holds, it becomes ``step``. After the last step,
    ``result`` is the value. ``var`` is the element; with ``var2``, ``var`` is the index or key and ``var2`` the value.
    """

    __slots__ = ("accu", "condition", "init", "iter_range", "result", "step", "var", "var2")

    def __init__(
        self,
        offset: int,
        iter_range: Node,
        var: str,
        accu: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
        var2: str | None = None,
    ) -> None:
        super().__init__(offset)
        self.iter_range = iter_range
        self.var = var
        self.var2 = var2
        self.accu = accu
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result
