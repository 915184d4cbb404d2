"""Environments: the variables, functions, macros and types that an expression may use.

Source of the base environment: k8s.io/apiserver ``pkg/cel/environment/base.go`` of v1.36.
"""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.cel import validators
from kubechronicle.api.cel.checker import CheckerScope, check
from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import CompileError, InstantiationError
from kubechronicle.api.cel.evaluation.code import ConstantError
from kubechronicle.api.cel.evaluation.planner import ExpressionPlanner
from kubechronicle.api.cel.evaluation.program import Program
from kubechronicle.api.cel.library.base_libraries import BASE_LIBRARIES
from kubechronicle.api.cel.syntax import parser
from kubechronicle.api.cel.syntax.ast import Node
from kubechronicle.api.cel.syntax.lexer import ExpressionSource, too_deep
from kubechronicle.api.cel.syntax.macros import Macro
from kubechronicle.api.cel.types import CelType, Overload
from kubechronicle.api.values.allowance import ALLOWANCE

COMPILATION: Final = 6e-6
"""Seconds of parsing, checking, planning and estimating a character of an expression."""

Types = Mapping[str, CelType] | Iterable[CelType]
"""Types by name. A mapping may compute its types on look-up."""


class Environment:
    """The names an expression may use. Immutable; `extend` returns a larger one. Made per use, not per expression."""

    def __init__(
        self,
        variables: Mapping[str, CelType] | None = None,
        libraries: Iterable[Library] = (),
        types: Types = (),
    ) -> None:
        self.variables = dict(variables or {})
        self.libraries = tuple(libraries)
        self._macros: dict[tuple[str, int, bool], Macro] = {}
        functions: dict[str, tuple[Overload, ...]] = {}
        constants: dict[str, tuple[CelType, Any]] = {}
        known: dict[str, CelType] = {}
        for library in self.libraries:
            for macro in library.macros:
                self._macros[macro.name, macro.arguments, macro.receiver] = macro
            for function in library.functions:
                functions[function.name] = functions.get(function.name, ()) + function.overloads
            constants.update(library.constants)
            known.update({of.name: of for of in library.types})
        self._own_types = types if isinstance(types, Mapping) else {of.name: of for of in types}
        self.types: Mapping[str, CelType] = ChainMap(self._own_types, known)  # type: ignore[arg-type]
        self._scope = CheckerScope(self.variables, constants, functions, self.types)

    def extend(
        self,
        variables: Mapping[str, CelType] | None = None,
        libraries: Iterable[Library] = (),
        types: Types = (),
    ) -> Environment:
        """Return a larger environment. ``types``: further types that an expression may construct or name."""
        own = types if isinstance(types, Mapping) else {of.name: of for of in types}
        return Environment(
            {**self.variables, **(variables or {})},
            (*self.libraries, *libraries),
            ChainMap(own, self._own_types) if own or types else self._own_types,  # type: ignore[arg-type]
        )

    def compile(self, expression: str, result: CelType | None = None) -> Program:
        """Return the program of an expression. Its type must be ``result`` if that is set; dyn fits any.

        CompileError: ``.issues`` lists the problems with their places, ``str()`` is cel-go's text.
        InstantiationError: the expression is valid, but a constant in it cannot be converted.
        """
        source = ExpressionSource(expression)
        tree = self.check(expression)
        if result is not None and tree.type != result and tree.type.kind not in ("dyn", "any"):
            raise CompileError([source.issue(0, f"must evaluate to {result}")], expression)
        return self.program(expression, tree)

    def program(self, expression: str, tree: Node) -> Program:
        """Return the program of an expression that was checked. Raises CompileError as `compile` does."""
        planner = ExpressionPlanner(self.types)
        try:
            code = planner.plan(tree)
        except ConstantError as error:
            raise InstantiationError(str(error)) from error
        except RecursionError as error:
            raise CompileError([too_deep()], expression) from error
        return Program(expression, code.run, code.cost, planner.slots, tree.type, validators.paths_read(tree))

    def check(self, expression: str) -> Node:
        """Return the checked tree of an expression. Raises CompileError as `compile` does."""
        ALLOWANCE.get().charge(min(len(expression), parser.MAX_SIZE) * COMPILATION)
        source = ExpressionSource(expression)
        tree = parser.parse(source, self._macros)
        try:
            check(tree, self._scope, source)
            validators.validate(tree, source)
        except RecursionError as error:
            raise CompileError([too_deep()], expression) from error
        return tree


@functools.cache
def base_environment() -> Environment:
    """Return the environment of every expression: the standard library and the additions of Kubernetes v1.36."""
    return Environment(libraries=BASE_LIBRARIES)
