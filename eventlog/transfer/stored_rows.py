"""Rows of the log outside of Postgres, in a backup or an import: the columns in the order of the digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubechronicle.eventlog.integrity.digests import COLUMNS, digested_width

NAMES: Final = (*COLUMNS, "digest", "hash")
NO_CLASS: Final = ""
"""The class of rows in a backup before schema 21."""
NO_REASON: Final = ""
NO_CAUSE: Final = 0
_POSITIONS: Final = {name: position for position, name in enumerate(NAMES)}
_COMMITTED_AT: Final = _POSITIONS["committed_at"]


class StoredRow(tuple[Any, ...]):
    """The columns of NAMES by position and by name, as a row of Postgres."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, _POSITIONS[key] if isinstance(key, str) else key)


def from_row(row: Any) -> StoredRow:
    """Return a row of Postgres, which has the columns of NAMES first."""
    return StoredRow(row[: len(NAMES)])


def of_columns(columns: Mapping[str, Any], digest: bytes, hash_: bytes) -> StoredRow:
    return StoredRow((*(columns[name] for name in COLUMNS), digest, hash_))


def to_json(row: Sequence[Any]) -> list[Any]:
    """Return the columns for JSON, digest and hash as hexadecimal text. The columns are those of the digest."""
    return [*row[: digested_width(row)], bytes(row[-2]).hex(), bytes(row[-1]).hex()]


def from_json(values: Sequence[Any]) -> StoredRow:
    """Return the row of ``to_json``. ValueError, TypeError."""
    for missing, default in ((3, NO_CLASS), (2, NO_REASON), (1, NO_CAUSE)):
        if len(values) == len(NAMES) - missing:
            values = [*values[:-2], default, *values[-2:]]
    if len(values) != len(NAMES):
        raise ValueError(f"a row has {len(values)} columns, not {len(NAMES)}")
    columns = list(values)
    columns[_COMMITTED_AT] = datetime.fromisoformat(columns[_COMMITTED_AT])
    columns[-2], columns[-1] = bytes.fromhex(columns[-2]), bytes.fromhex(columns[-1])
    return StoredRow(columns)
