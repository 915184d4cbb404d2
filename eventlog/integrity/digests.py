"""Digests of rows of the log, computed as Postgres did at the append (kubechronicle.append).

    digest = sha256(encoding of every column)

The encoding is Postgres' record_send: the number of columns, then for each its type's oid, its length and its binary
form; big-endian, -1 as the length of null. So different rows have different encodings.

Since schema 21 the retention class is a column of the digest, because it decides when a row is dropped. Rows
appended before have a digest without it; their class must be that of their resource (``usual_class``).

Since schema 22 a row may have a reason: the last column of its digest. A row without one has the digest of schema 21,
or that before it.

Since schema 25 a row may have a cause, the revision that it is a consequence of: then reason and cause are the last
columns of its digest.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from kubechronicle.eventlog.postgres.session import Row

# The columns in the order of the digest, with the oid of their type.
_INT8, _INT2, _TEXT, _TEXT_ARRAY, _JSON, _TIMESTAMPTZ = 20, 21, 25, 1009, 114, 1184
DIGESTED: tuple[tuple[str, int], ...] = (
    ("revision", _INT8),
    ("create_revision", _INT8),
    ("version", _INT8),
    ("previous_revision", _INT8),
    ("committed_at", _TIMESTAMPTZ),
    ("operation", _INT2),
    ("resource", _TEXT),
    ("namespace", _TEXT),
    ("name", _TEXT),
    ("uid", _TEXT),
    ("user_name", _TEXT),
    ("user_uid", _TEXT),
    ("user_groups", _TEXT_ARRAY),
    ("user_extra", _JSON),
    ("impersonator", _TEXT),
    ("verb", _TEXT),
    ("request_uri", _TEXT),
    ("user_agent", _TEXT),
    ("source_address", _TEXT),
    ("field_manager", _TEXT),
    ("audit_id", _TEXT),
    ("object", _JSON),
)
COLUMNS: tuple[str, ...] = (*(name for name, _ in DIGESTED), "class", "reason", "cause")
"""The columns of the present digest."""
SHORT: frozenset[str] = frozenset(("events", "events.events.k8s.io", "leases.coordination.k8s.io"))
"""The resources of the class short, as long as digests had no class."""
_WITH_ALL = (*DIGESTED, ("class", _TEXT), ("reason", _TEXT), ("cause", _INT8))
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # of Postgres' timestamps
_COLUMN_HEAD = struct.Struct("!ii")
_FIXED = {
    _INT8: struct.Struct("!iiq"),
    _INT2: struct.Struct("!iih"),
}


def encode_row(values: Sequence[Any]) -> bytes:
    """Return the canonical encoding of a row, from its values in the order of COLUMNS, or without the last ones."""
    parts = [len(values).to_bytes(4, "big")]
    for value, (_, oid) in zip(values, _WITH_ALL[: max(len(values), len(DIGESTED))], strict=True):
        if value is None:
            parts.append(_COLUMN_HEAD.pack(oid, -1))
        elif oid == _INT8:
            parts.append(_FIXED[_INT8].pack(oid, 8, value))
        elif oid == _INT2:
            parts.append(_FIXED[_INT2].pack(oid, 2, value))
        elif oid == _TIMESTAMPTZ:
            parts.append(_FIXED[_INT8].pack(oid, 8, (value - EPOCH) // timedelta(microseconds=1)))
        else:
            data = _encode_array(value) if oid == _TEXT_ARRAY else value.encode()
            parts.append(_COLUMN_HEAD.pack(oid, len(data)) + data)
    return b"".join(parts)


def _encode_array(values: Sequence[str]) -> bytes:
    """Encode text[] as array_send: dimensions, a flag for nulls, element type; per dimension length and lower bound."""
    if not values:
        return struct.pack("!iii", 0, 0, _TEXT)
    parts = [struct.pack("!iiiii", 1, 0, _TEXT, len(values), 1)]
    for value in values:
        data = value.encode()
        parts.append(len(data).to_bytes(4, "big") + data)
    return b"".join(parts)


def digest_of(row: Row) -> bytes:
    """Return the digest of a row, which begins with COLUMNS."""
    return sha256(encode_row(row[: digested_width(row)])).digest()


def digested_width(row: Sequence[Any]) -> int:
    """Return the number of the COLUMNS of a row that its digest covers: an empty reason and no cause are left out."""
    reason, cause = row[len(COLUMNS) - 2 : len(COLUMNS)]
    return len(COLUMNS) if cause else len(COLUMNS) - 1 if reason else len(COLUMNS) - 2


def former_digest_of(row: Row) -> bytes:
    """Return the digest without class. A row with a reason or a cause has none: it was appended later."""
    if digested_width(row) > len(COLUMNS) - 2:
        return digest_of(row)
    return sha256(encode_row(row[: len(DIGESTED)])).digest()


def digest_among(row: Row, expected: Collection[bytes]) -> bytes:
    """Return the digest of a row in the version that is expected, or the present one if neither is."""
    digest = digest_of(row)
    if digest in expected:
        return digest
    former = former_digest_of(row)
    return former if former in expected else digest


def columns_digest(columns: Mapping[str, Any], expected: Collection[bytes] = ()) -> bytes:
    """Return the same of columns by name."""
    return digest_among(tuple(columns[name] for name in COLUMNS), expected)


def usual_class(resource: str) -> str:
    """Return the class of a resource's rows whose digest does not cover it."""
    return "short" if resource in SHORT else "long"
