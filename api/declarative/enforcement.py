"""Enforcement: the rules of the tags of all kinds under the feature gates of a server.

kube-apiserver has one set of tags, whatever version it emulates: those of its own release. It appends what they find
to what it has found by hand (rest ``ValidateDeclarativelyWithMigrationChecks``). What a tag says, no code repeats. So
the gate DeclarativeValidationBeta chooses nothing here: kube-apiserver has the rules of that level as code, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kubechronicle.api.declarative.compiler import MAIN, Compiler
from kubechronicle.api.declarative.rules import Operation, Rule
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import SERVED
from kubechronicle.api.kinds.reading import release
from kubechronicle.api.values.objects import Object, ReadOnlyObject

FIRST: Final = "1.37"
"""The first minor whose tags have force. Those of v1.36 are copies of rules in code, and the same rules."""
RULES: Final = max(SERVED, FIRST, key=lambda minor: [int(part) for part in minor.split(".")])
"""The minor whose tags are enforced."""

InUse = Mapping[str, Callable[[Object], bool]]
"""Options that are on for an update, too, if the old object uses their feature."""
NEVER: Final[InUse] = MappingProxyType({})


class DeclaredRules:
    """The rules of all kinds. They are compiled when a kind is first written, and kept: one for each definition."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates
        self._compiler: Compiler | None = None
        self._known: dict[str, tuple[Rule | None, frozenset[str]]] = {}

    def has(self, definition: str) -> bool:
        """Tell whether a definition such as ``io.k8s.api.core.v1.Pod`` has rules."""
        return self._of(definition)[0] is not None

    def causes(
        self,
        definition: str,
        subresource: str,
        new: ReadOnlyObject,
        old: Object | None,
        in_use: InUse = NEVER,
        *,
        with_code: bool = True,
    ) -> Sequence[Cause]:
        """Return the problems of an object in the version of its definition; of an update, if there is an old one.

        ``with_code``: as in Operation.
        """
        rule, places = self._of(definition)
        if rule is None or MAIN + subresource not in places:
            return ()
        op = Operation(update=old is not None, option=self._option(old, in_use), with_code=with_code)
        return rule(op, "", new, old)

    def _of(self, definition: str) -> tuple[Rule | None, frozenset[str]]:
        known = self._known.get(definition)
        if known is None:
            known = self._known[definition] = self._compiled(definition)
        return known

    def _compiled(self, definition: str) -> tuple[Rule | None, frozenset[str]]:
        facts = release(RULES)
        try:
            name = facts.defined(definition).full_name
        except KeyError:  # a version that the release no longer has
            return None, frozenset()
        if self._compiler is None:
            self._compiler = Compiler(facts)
        return self._compiler.rule(name), self._compiler.subresources(name)

    def _option(self, old: Object | None, in_use: InUse) -> Callable[[str], bool]:
        def option(name: str) -> bool:
            uses = in_use.get(name)
            return self._on(name) or (uses is not None and old is not None and uses(old))

        return option

    def _on(self, gate: str) -> bool:
        try:
            return self._gates.enabled(gate)
        except KeyError:  # a gate of a later release than the program's
            return False
