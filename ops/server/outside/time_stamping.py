"""Time-stamping services (RFC 3161): asking one for a token, and the proof of a token by certificates.

A request has the SHA-512 digest of the statement, a nonce, and the wish for the service's certificates (RFC 3161
§2.4.1). The answer is kept whole, so `openssl ts -verify` reads it, too. The optional rfc3161-client reads messages and
signatures: this module is imported when a service is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha512
from itertools import pairwise
from pathlib import Path
from typing import Final

from cryptography import x509

from kubechronicle.eventlog.integrity.checkpoints import Checkpoint, parse_statement
from kubechronicle.eventlog.integrity.witnesses import WitnessToken
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.ops.errors import OperatorError

try:
    from rfc3161_client import (
        HashAlgorithm,
        PKIStatus,
        TimestampRequestBuilder,
        TimeStampResponse,
        VerificationError,
        VerifierBuilder,
        decode_timestamp_response,
    )
except ImportError:
    raise OperatorError("--witness needs a further package: pip install 'kubechronicle[witness]'") from None

__all__ = ["NoToken", "Service", "authorities", "proved", "services_of"]

TIMEOUT: Final = 30.0
"""Seconds for an answer."""
LONGEST_ANSWER: Final = 256 * 1024
"""Bytes: a token with a chain of certificates has less than 20 KiB."""
MOST_APART: Final = timedelta(minutes=15)
"""Between the database's clock and the service's. A token of a false time would prove little."""
_HEADERS: Final = {"content-type": "application/timestamp-query", "accept": "application/timestamp-reply"}
_OK: Final = 200
_CERTIFICATES: Final = 0xA0


class NoToken(Exception):
    """A service gave no token. One line."""


class Service:
    """One service at a URL. Its requests need a running ``outgoing``."""

    def __init__(self, url: str, outgoing: Outgoing) -> None:
        self.url = url
        peer = RemoteServer(url=url, http_allowed=True)
        self._client = outgoing.client(
            peer, timeout=TIMEOUT, max_answer=LONGEST_ANSWER, max_connections=1, network=Network.CONTROL_PLANE
        )

    async def token(self, state: Checkpoint) -> WitnessToken:
        """Return a token over the state. NoToken."""
        statement = state.statement().encode("ascii")
        request = TimestampRequestBuilder().data(statement).hash_algorithm(HashAlgorithm.SHA512).build()
        try:
            answer = await self._client.ask("POST", body=request.as_bytes(), headers=_HEADERS)
        except AskError as error:
            raise NoToken(str(error)) from None
        if answer.status != _OK:
            raise NoToken(f"{self.url} answered {answer.status}")
        stamped = _accepted(self.url, answer.body, statement, request.nonce)
        if abs(stamped - state.noted_at) > MOST_APART:
            raise NoToken(
                f"{self.url} says that it is {stamped.isoformat()}, and the database: {state.noted_at.isoformat()}"
            )
        return WitnessToken(origin=self.url, service=self.url, statement=statement, token=answer.body)


def _accepted(url: str, body: bytes, statement: bytes, nonce: int | None) -> datetime:
    """Return the time in an answer to our request. NoToken: it has no token of this statement and nonce."""
    try:
        response = _decoded(body)
        if PKIStatus(response.status) != PKIStatus.GRANTED:
            why = "; ".join(response.status_string) or PKIStatus(response.status).name
            raise NoToken(f"{url} gave no token: {why}")
        info = response.tst_info
        if info.message_imprint.message != sha512(statement).digest() or info.nonce != nonce:
            raise NoToken(f"{url} gave a token for another request")
        return _utc(info.gen_time)
    except ValueError as error:
        raise NoToken(f"{url} gave no token that can be read: {error}") from None


def proved(token: WitnessToken, trusted: Sequence[x509.Certificate]) -> tuple[Checkpoint, datetime]:
    """Return the state in a token, and the time of the token. ValueError: the certificates do not prove it."""
    builder = VerifierBuilder(roots=list(trusted))
    try:
        state = parse_statement(token.statement.decode("ascii"))
        response = _decoded(token.token)
        builder.build().verify_message(response, token.statement)
        return state, _utc(response.tst_info.gen_time)
    except (ValueError, VerificationError) as error:
        raise ValueError(f"{token.origin} is not proved by these certificates: {error}") from None


def _decoded(body: bytes) -> TimeStampResponse:
    """Return the message. ValueError: it is none."""
    return decode_timestamp_response(ordered(body))


def ordered(body: bytes) -> bytes:
    """Return an answer with its certificates in the order of DER, as rfc3161-client demands and `openssl ts` ignores.

    Their order is not signed. TimeStampResp (RFC 3161 §2.4.2) with SignedData (RFC 5652 §5.1) is

        SEQ(status, SEQ(type, [0](SEQ(version, digests, content, [0](certificate …), signers))))
    """
    try:
        token = _items(body, *_items(body, 0, len(body))[0][1:])[1]
        signed = _items(body, *_items(body, *_items(body, *token[1:])[1][1:])[0][1:])
        tag, first, end = signed[3]
        certificates = [body[start:until] for start, until in _extents(body, first, end)]
    except IndexError:  # another message, such as one without a token
        return body
    return body[:first] + b"".join(sorted(certificates)) + body[end:] if tag == _CERTIFICATES else body


def _items(body: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Return tag, begin and end of the content of each item of DER. IndexError: the bytes are none."""
    found = []
    while at < end:
        tag, size, content = body[at], body[at + 1], at + 2
        if size & 0x80:
            content += size & 0x7F
            size = int.from_bytes(body[at + 2 : content], "big")
        at = content + size
        if at > end:
            raise IndexError(at)
        found.append((tag, content, at))
    return found


def _extents(body: bytes, at: int, end: int) -> list[tuple[int, int]]:
    """Return begin and end of each item, with its tag."""
    ends = [until for _, _, until in _items(body, at, end)]
    return list(pairwise([at, *ends]))


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def authorities(files: Sequence[Path]) -> list[x509.Certificate]:
    """Return the certificates (PEM) in files. OperatorError."""
    found: list[x509.Certificate] = []
    for file in files:
        try:
            found += x509.load_pem_x509_certificates(file.read_bytes())
        except OSError as error:
            raise OperatorError(f"--witness: cannot read {file}: {error.strerror}") from None
        except ValueError:
            raise OperatorError(f"--witness: {file} has no certificates (PEM) of time-stamping services") from None
    return found


def services_of(urls: Sequence[str], outgoing: Outgoing) -> list[Service]:
    """Return the services. OperatorError: a URL is none."""
    try:
        return [Service(url, outgoing) for url in urls]
    except ValueError as error:
        raise OperatorError(f"--witness: {error}") from None
