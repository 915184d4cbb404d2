"""Keys and authorities that all servers on one database share: `--shared-keys-encryption-file`.

Behind one load balancer, servers must accept each other's tokens and certificates. The first server with the setting
makes the keys in its DATA_DIR/pki, as without it, and stores them in the database. The others take them from there.

The database has them encrypted (AES-256-GCM) with a key that only the operator's file has. So a reader of the database,
or of a copy, cannot become a user of the cluster. The ciphertext is bound to its name and to the log: it cannot be put
into another place.

    operator's file   32 bytes in base64
    sealed            12 bytes of nonce, then the ciphertext of a JSON object: file name -> text
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import UUID

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.servers import sharing_keys
from kubechronicle.ops.data_dir import locked, make_data_dir
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import write_whole

FLAG: Final = "--shared-keys-encryption-file"
SHARED: Final = {
    "ca": ("ca.key", "ca.crt"),
    "front-proxy-ca": ("front-proxy-ca.key", "front-proxy-ca.crt"),
    "sa": ("sa.key",),
}
"""The files of each pair, in the order of writing: a certificate says that its key is there."""
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def encryption_key(path: Path) -> bytes:
    """Read the operator's file. OperatorError."""
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except OSError as error:
        raise OperatorError(f"{FLAG}: cannot read {path}: {error.strerror}") from None
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise OperatorError(
            f"{FLAG}: {path} must hold {KEY_BYTES} bytes in base64; "
            f"make it with: head -c {KEY_BYTES} /dev/urandom | base64"
        )
    return key


def sealed(key: bytes, name: str, log_id: UUID, files: dict[str, str]) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, orjson.dumps(files), _bound_to(name, log_id))


def unsealed(key: bytes, name: str, log_id: UUID, value: bytes) -> dict[str, str]:
    """Return the files. OperatorError: they are encrypted with another key, or were changed."""
    nonce, ciphertext = value[:NONCE_BYTES], value[NONCE_BYTES:]
    try:
        files: dict[str, str] = orjson.loads(AESGCM(key).decrypt(nonce, ciphertext, _bound_to(name, log_id)))
    except (InvalidTag, ValueError):
        raise OperatorError(
            f"{FLAG}: the keys in the database are encrypted with another key; give each server the same file"
        ) from None
    return files


def _bound_to(name: str, log_id: UUID) -> bytes:
    return f"{name} {log_id}".encode()


async def share_keys(database_url: str, key: bytes, directory: Path, make: Callable[[], Awaitable[None]]) -> list[str]:
    """Take the shared keys into the directory, make missing ones, and share these. Return the names of those taken.

    ``make``: makes the keys that the directory lacks
    """
    taken = []
    async with open_session(database_url) as session, sharing_keys(session) as shared:
        for name, value in shared.sealed.items():
            if name in SHARED and place(directory, name, unsealed(key, name, shared.log_id, value)):
                taken.append(name)
        await make()
        for name in SHARED.keys() - shared.sealed.keys():
            if files := present(directory, name):
                await shared.add(name, sealed(key, name, shared.log_id, files))
    return taken


def place(directory: Path, name: str, files: dict[str, str]) -> bool:
    """Write the files of a pair. Return whether any was missing. OperatorError: the directory has others."""
    changed = False
    try:
        make_data_dir(directory.parent)
        directory.mkdir(exist_ok=True, mode=0o755)
        with locked(directory / ".lock", wait=True):
            for file in SHARED[name]:
                path, text = directory / file, files[file]
                if path.exists():
                    if path.read_text() != text:
                        raise OperatorError(
                            f"{FLAG}: {path} is not the one that the servers on this database share; "
                            f"move {directory} away, and this server takes theirs"
                        )
                else:
                    write_whole(path, text.encode(), mode=0o600 if file.endswith(".key") else 0o644)
                    changed = True
    except OSError as error:
        raise OperatorError(f"cannot keep keys in {directory}: {error}") from error
    return changed


def present(directory: Path, name: str) -> dict[str, str]:
    """Return the files of a pair; empty: the directory lacks one."""
    files = {file: directory / file for file in SHARED[name]}
    return {file: path.read_text() for file, path in files.items()} if all(map(Path.exists, files.values())) else {}
