"""Checkpoint: the state of a log at a time, in a few lines, to be signed and kept apart from the log.

    kubechronicle checkpoint v1
    log: 6b1c…                                  the log id
    revision: 4711                              its newest revision at that time
    hash: 5e88…                                 of that revision, and so of all before it (see verify.py)
    committed: 2026-03-02T14:12:00.000000Z      commit time of that revision
    noted: 2026-03-02T15:00:00.000000Z          time of the checkpoint, by the database's clock
    key: 0f3a…                                  SHA-256 of the public key (DER, SubjectPublicKeyInfo)
    signature: …                                Ed25519 over all bytes before this line, base64

ASCII, in this order, each line ended by a line feed. Sans-IO: no keys here (ops/maintenance/checkpoints.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

FIRST_LINE = "kubechronicle checkpoint v1"
LONGEST = 4096  # bytes of a file

_LINES = re.compile(
    rf"""{FIRST_LINE}
log: (?P<log>[0-9a-f-]{{36}})
revision: (?P<revision>\d{{1,19}})
hash: (?P<hash>[0-9a-f]{{64}})
committed: (?P<committed>[0-9T:.-]{{26}}Z)
noted: (?P<noted>[0-9T:.-]{{26}}Z)
key: (?P<key>[0-9a-f]{{64}})
"""
)
_NO_CHECKPOINT = "is no checkpoint as `kubechronicle checkpoint` writes it"
_SIGNATURE = re.compile(r"signature: ([A-Za-z0-9+/]{86}==)\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """See the head of this file."""

    log_id: UUID
    revision: int
    hash: bytes
    committed_at: datetime
    noted_at: datetime
    key: bytes  # SHA-256 of the public key

    def signed_text(self) -> str:
        """Return the text to sign."""
        return (
            f"{FIRST_LINE}\nlog: {self.log_id}\nrevision: {self.revision}\nhash: {self.hash.hex()}\n"
            f"committed: {_written(self.committed_at)}\nnoted: {_written(self.noted_at)}\nkey: {self.key.hex()}\n"
        )


def parse(text: str) -> tuple[Checkpoint, str, str]:
    """Return the checkpoint, the signed text, and the signature in base64. ValueError: it is no checkpoint."""
    lines = _LINES.match(text)
    signature = _SIGNATURE.fullmatch(text, lines.end()) if lines else None
    if lines is None or signature is None:
        raise ValueError(_NO_CHECKPOINT)
    try:
        checkpoint = Checkpoint(
            log_id=UUID(lines["log"]),
            revision=int(lines["revision"]),
            hash=bytes.fromhex(lines["hash"]),
            committed_at=_read(lines["committed"]),
            noted_at=_read(lines["noted"]),
            key=bytes.fromhex(lines["key"]),
        )
    except ValueError:  # not a time, or not an id
        raise ValueError(_NO_CHECKPOINT) from None
    return checkpoint, lines[0], signature[1]


def _written(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _read(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
