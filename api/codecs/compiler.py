"""Compiles messages of the table into Python functions, each when it is first called.

A message costs nothing until one of its kind is met. The functions of one compiler share a namespace, in which each
calls those of its fields' messages by name. Not here: the source of the functions (decoders.py, encoders.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubechronicle.api.codecs.table import WireMessage, message_named

__all__ = ["SCHEMA", "WireCompiler", "function_name", "indented", "schema_unions"]

Coder = Callable[..., Any]

SCHEMA = "apiextensions/v1.JSONSchemaProps"
"""The message of a schema. It serves v1beta1 too: the messages of both versions have the same fields."""


def schema_unions(schema_or_bool: Coder, schema_or_list: Coder, schema_or_strings: Coder) -> dict[str, Coder]:
    """Return the functions of unions by the names of their types. In JSON, a union is known by its value's shape."""
    return {
        f"apiextensions/{version}.JSONSchemaPropsOr{name}": function
        for version in ("v1", "v1beta1")
        for name, function in (("Bool", schema_or_bool), ("Array", schema_or_list), ("StringArray", schema_or_strings))
    }


def function_name(kind: str) -> str:
    """Return the name in the namespace of a type's function."""
    return "M_" + kind.replace("/", "_").replace(".", "_")


class WireCompiler:
    """One direction of the codec.

    ``namespace``: the globals of the compiled functions; functions of types that are no messages are in it already.
    ``unions``: the functions of types that `schema_unions` lists.
    ``source``: (message, name of its function) -> the function's Python source.
    ``label``: names the compiled source in tracebacks.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        unions: dict[str, Coder],
        source: Callable[[WireMessage, str], str],
        label: str,
    ) -> None:
        self._namespace = namespace
        self._unions = unions
        self._source = source
        self._label = label

    def function(self, kind: str) -> Coder:
        """Return the function of a type."""
        function: Coder = self._namespace[self.reference(kind)]
        return function

    def reference(self, kind: str) -> str:
        """Return the name of a type's function, which is in the namespace from then on."""
        name = function_name(kind)
        if name not in self._namespace:
            self._namespace[name] = self._unions.get(kind) or self._on_first_call(kind, name)
        return name

    def _on_first_call(self, kind: str, name: str) -> Coder:
        def compile_and_call(*arguments: Any) -> Any:
            source = self._source(message_named(kind), name)
            exec(compile(source, f"<{self._label} of {kind}>", "exec"), self._namespace)
            return self._namespace[name](*arguments)

        return compile_and_call


def indented(lines: list[str], by: int) -> list[str]:
    """Return the lines of source, each moved right by so many blanks."""
    return [" " * by + line for line in lines]
