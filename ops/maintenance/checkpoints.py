"""`kubechronicle checkpoint`, and reading the checkpoints for `kubechronicle verify`: Ed25519 (RFC 8032).

The default key is DATA_DIR/pki/checkpoint.key, made when first needed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from kubechronicle.eventlog.integrity.checkpoints import LONGEST, Checkpoint, parse
from kubechronicle.eventlog.integrity.witnesses import state_of
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.ops import terminal
from kubechronicle.ops.data_dir import locked
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.pki import write_whole
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings

KEY_FILE = "checkpoint.key"
KEY_BEGINS = "-----BEGIN PUBLIC KEY-----"
"""The line after a checkpoint on standard output. A file with both is still a checkpoint."""
LONGEST_KEY = 200


async def run_checkpoint(settings: Settings, *, key_file: Path | None, output: Path | None) -> int:
    """Sign the present state of the log. Print the public key to standard output, after the checkpoint if it is there.

    ``output``: the file for the checkpoint, None for standard output.
    """
    async with (
        maintenance_database(settings) as url,
        open_session(url, application="kubechronicle checkpoint") as session,
    ):
        await check_schema(session)
        state = await state_of(session)
        await tell_of_others(session)
    key = _private_key(key_file) if key_file is not None else _own_key(settings.data_dir / "pki")
    public = key.public_key()
    checkpoint = replace(state, key=_name_of(public))
    text = checkpoint.signed_text()
    signed = f"{text}signature: {base64.b64encode(key.sign(text.encode())).decode()}\n"
    if output is None:
        terminal.stdout().lines(signed)
    else:
        try:
            write_whole(output, signed.encode(), mode=0o644)
        except OSError as error:
            raise OperatorError(f"--output: cannot write {output}: {error.strerror}") from None
    terminal.stdout().lines(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())
    return 0


def read_checkpoints(settings: Settings, files: Sequence[str], key_file: Path | None) -> tuple[list[Checkpoint], str]:
    """Return the checkpoints, and the problem with the first that the key did not sign ("" if it signed all).

    Raise OperatorError if a file is no checkpoint, or the key is none.
    """
    checkpoints: list[Checkpoint] = []
    public = _public_key(settings, key_file) if files else None
    for name in files:
        try:
            with Path(name).open("rb") as file:
                text, _, _ = file.read(LONGEST + LONGEST_KEY).decode("ascii").partition(KEY_BEGINS)
            checkpoint, signed, signature = parse(text)
        except OSError as error:
            raise OperatorError(f"--checkpoint: cannot read {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise OperatorError(f"--checkpoint: {name} is no checkpoint") from None
        except ValueError as error:
            raise OperatorError(f"--checkpoint: {name} {error}") from None
        assert public is not None
        if checkpoint.key != _name_of(public):
            return checkpoints, f"{name} is signed with another key than this one ({_name_of(public).hex()})"
        try:
            public.verify(base64.b64decode(signature), signed.encode())
        except InvalidSignature:
            return checkpoints, f"{name} was changed since it was signed: the signature does not fit"
        checkpoints.append(checkpoint)
    return checkpoints, ""


def add_anchors(anchors: dict[int, bytes], checkpoints: Sequence[Checkpoint]) -> str:
    """Add the hashes of checkpoints to the anchors. Return the problem of two that contradict, "" without one."""
    for each in checkpoints:
        if anchors.setdefault(each.revision, each.hash) != each.hash:
            return f"two different hashes are given for revision {each.revision}"
    return ""


def _name_of(key: Ed25519PublicKey) -> bytes:
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def _public_key(settings: Settings, key_file: Path | None) -> Ed25519PublicKey:
    """Return the public key of a file with a public or private key; by default of our own."""
    path = key_file or settings.data_dir / "pki" / KEY_FILE
    content = _content(path, "" if key_file else "; name the public key with --key")
    try:
        key = load_pem_public_key(content)
    except ValueError:
        return _private_key(path).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise OperatorError(f"--key: {path} is no Ed25519 key")
    return key


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(_content(path, ""), password=None)
    except (ValueError, TypeError):
        raise OperatorError(f"--key: {path} is no Ed25519 key (PEM, without a password)") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise OperatorError(f"--key: {path} is no Ed25519 key")
    return key


def _content(path: Path, advice: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OperatorError(f"--key: cannot read {path}: {error.strerror}{advice}") from None


def _own_key(directory: Path) -> Ed25519PrivateKey:
    """Return the key in the directory. Make it if missing, under a lock, so that two commands do not make two."""
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        with locked(directory / ".lock", wait=True):
            if not path.exists():
                key = Ed25519PrivateKey.generate()
                write_whole(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600)
    except OSError as error:
        raise OperatorError(f"cannot keep the key of checkpoints in {directory}: {error}") from None
    return _private_key(path)
