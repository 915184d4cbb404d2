"""Archives to rewrite after an erasure: the rows that match, the erasures that a row lacks, and the row after them.

Nothing here reads the database or decides what is erased (eraser.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubechronicle.eventlog.erasure import statements
from kubechronicle.eventlog.erasure.plan import ErasureRequest
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.digests import columns_digest
from kubechronicle.eventlog.integrity.erasures import ErasedPart, Erasure
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.retention import archives


@dataclass(slots=True)
class ErasedFile:
    """An archive to rewrite. ``steps``: the erasures (part, id) that a row lacks, by revision."""

    archive: archives.Archive
    steps: dict[int, list[tuple[ErasedPart, str]]] = field(default_factory=dict)


def step_to(digest: bytes, columns: erasures.Columns, erasure: Erasure) -> tuple[ErasedPart, dict[str, Any]]:
    """Return the part that an erasure has removed of a row, and the columns that it left, which have the digest."""
    for part in erasures.PARTS[erasure.scope]:
        left = erasures.erased_columns(columns, part, erasure.id)
        if columns_digest(left, (digest,)) == digest:
            return part, left
    raise LogCorrupt(f"revision {columns['revision']} was edited; `kubechronicle verify` shows details")


class Rewriter:
    """Returns the columns of an archived row after its erasures; None: the row does not change."""

    def __init__(self, steps: Mapping[int, Sequence[tuple[ErasedPart, str]]]) -> None:
        self._steps = steps

    def __call__(self, row: ArchivedRow) -> Mapping[str, Any] | None:
        steps = self._steps.get(row.revision)
        if steps is None:
            return None
        columns: Mapping[str, Any] = row.columns
        for part, erasure in steps:
            columns = erasures.erased_columns(columns, part, erasure)
        return columns


def next_matching(archived: Iterator[ArchivedRow], request: ErasureRequest, stays: int | None) -> list[ArchivedRow]:
    """Return the next rows to erase, at most a chunk; [] at the end."""
    chunk: list[ArchivedRow] = []
    for row in archived:
        if request.part(row.columns) is not None and row.revision != stays:
            chunk.append(row)
            if len(chunk) == statements.CHUNK:
                break
    return chunk
