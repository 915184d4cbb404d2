"""Digests of rows of the log, computed as Postgres did at the append (kubechronicle.append).

    digest = sha256(encoding of every column)

The encoding is Postgres' record_send: the number of columns, then for each its type's oid, its length and its binary
form; big-endian, -1 as the length of null. So different rows have different encodings.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # of Postgres' timestamps
_COLUMN_HEAD = struct.Struct("!ii")
_FIXED = {
    _INT8: struct.Struct("!iiq"),
    _INT2: struct.Struct("!iih"),
}


def encode_row(values: Sequence[Any]) -> bytes:
    """Return the canonical encoding of a row, from its values in the order of DIGESTED."""
    parts = [len(DIGESTED).to_bytes(4, "big")]
    for value, (_, oid) in zip(values, DIGESTED, strict=True):
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
    return sha256(encode_row(row[: len(DIGESTED)])).digest()
