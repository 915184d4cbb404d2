"""Encrypted contents, checked with their keys: `kubechronicle verify --encryption-provider-config FILE`.

The hash chain proves that ciphertext is what was appended, without any key. This check proves that it is readable: each
encrypted row is decrypted, and with authenticating ciphers belongs to its object. Nothing of the contents is printed.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import trio

from kubechronicle.eventlog.encryption.contents import Contents
from kubechronicle.eventlog.errors import TransformError
from kubechronicle.eventlog.postgres.session import Session
from kubechronicle.eventlog.records import Key
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.encryption.plan import EncryptionPlan

CHUNK: Final = 500
# Reads the whole table: no index tells which rows are encrypted.
_ROWS: Final = """
select revision, resource, namespace, name, object from kubechronicle.{}
where kubechronicle.is_encrypted(object) order by revision
"""


@dataclass(slots=True)
class ContentsVerdict:
    """``readable``, ``unreadable``: the number of encrypted rows. ``first``: the first unreadable revision, 0: none."""

    readable: int = 0
    unreadable: int = 0
    first: int = 0
    reason: str = ""


async def check_contents(session: Session, plan: EncryptionPlan) -> ContentsVerdict:
    """Decrypt every encrypted row, those that were copied forward included. LogUnavailable."""
    verdict = ContentsVerdict()
    encryption = Encryption(plan)
    async with trio.open_nursery() as nursery:
        await nursery.start(encryption.run)
        for table in ("kept", "log"):
            await _check_table(session, table, encryption.contents, verdict)
        nursery.cancel_scope.cancel()
    return verdict


async def _check_table(session: Session, table: str, contents: Contents, verdict: ContentsVerdict) -> None:
    async with session.snapshot():
        await session.execute("set local statement_timeout = 0")
        rows = session.rows(_ROWS.format(table), chunk=CHUNK, size=lambda row: len(row["object"]))
        async with aclosing(rows) as chunks:
            async for chunk in chunks:
                for row in chunk:
                    key = Key(row["resource"], row["namespace"], row["name"])
                    try:
                        await contents.decrypted(key, row["object"].encode())
                    except TransformError as error:
                        verdict.unreadable += 1
                        if not verdict.first or row["revision"] < verdict.first:
                            verdict.first, verdict.reason = row["revision"], str(error)
                    else:
                        verdict.readable += 1
