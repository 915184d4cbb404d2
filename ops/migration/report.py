"""Report of an import: the objects by resource, and each value that could not be imported, with the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kubechronicle.ops.terminal import Output

SHOWN: Final = 20
"""Problems that are printed one by one; a file of --report has all."""


@dataclass(slots=True)
class MigrationReport:
    """``imported``: objects by resource. ``left``: keys of no objects, by their kind. ``problems``: by key."""

    imported: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add_problem(self, where: str, reason: str) -> None:
        self.problems[where] = reason

    def print(self, output: Output, errors: Output) -> None:
        for resource, count in sorted(self.imported.items()):
            if count:
                output.line(f"{count:8} {resource}")
        if self.left:
            kinds = ", ".join(f"{count} values of {kind}" for kind, count in sorted(self.left.items()))
            output.line(f"left out, because they are no objects: {kinds}")
        for note in self.notes:
            output.line(note)
        for where, reason in list(self.problems.items())[:SHOWN]:
            errors.line(f"not imported: {where}: {reason}")
        if len(self.problems) > SHOWN:
            errors.line(f"not imported: {len(self.problems) - SHOWN} more; --report FILE names all")

    def lines(self) -> str:
        """Return all problems, one a line, for a file."""
        return "".join(f"{where}\t{' '.join(reason.split())}\n" for where, reason in self.problems.items())
