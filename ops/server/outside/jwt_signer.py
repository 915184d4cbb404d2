"""An external signer of service account tokens behind a Unix socket (k8s.io/externaljwt v1, KEP-740).

Sign         claims 1                                              -> header 1, signature 2
FetchKeys    {}                                                    -> keys 1, data_timestamp 2, refresh_hint_seconds 3
             a key: key_id 1, key 2 (PKIX), exclude_from_oidc_discovery 3
Metadata     {}                                                    -> max_token_expiration_seconds 1

A start waits for the keys. They are fetched again when the signer's hint says so, and at a token with an unknown key.

Metrics of an external signer of service account tokens, with kube-apiserver's names.
"""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import trio
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.token_issuer import SigningFailed
from kubechronicle.http.outgoing.grpc_channel import GrpcChannel, GrpcError, unix_socket

PREFIX: Final = "apiserver_externaljwt"
NOT_GRPC: Final = "unknown-non-grpc"
"""The code of an error that is not one of gRPC."""
BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class SignerMetrics:
    """Counters of the calls. ``dated``: the signer's time of its keys."""

    def __init__(self) -> None:
        self._fetches = Counter(
            f"{PREFIX}_fetch_keys_request_total", "Total attempts at syncing supported JWKs", ["code"], registry=None
        )
        self._fetched_at = Gauge(
            f"{PREFIX}_fetch_keys_success_timestamp",
            "Unix Timestamp in seconds of the last successful FetchKeys request",
            registry=None,
        )
        self.dated = Gauge(
            f"{PREFIX}_fetch_keys_data_timestamp",
            "Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external "
            "signer",
            registry=None,
        )
        self.signed = Counter(f"{PREFIX}_sign_request_total", "Total attempts at signing JWT", ["code"], registry=None)
        self.seconds = Histogram(
            f"{PREFIX}_request_duration_seconds",
            "Request duration and time for calls to external-jwt-signer",
            ["method", "code"],
            buckets=BUCKETS,
            registry=None,
        )

    def fetched(self, code: str) -> None:
        """Count a fetch of the keys."""
        self._fetches.labels(code).inc()
        if code == "OK":
            self._fetched_at.set_to_current_time()

    def collectors(self) -> list[Collector]:
        """Return all metrics."""
        return [self._fetches, self._fetched_at, self.dated, self.signed, self.seconds]


__all__ = ["BadSignerAnswer", "GrpcError", "JwtSigner", "Keys", "key_id_of", "keys_of"]

log = logging.getLogger(__name__)

SERVICE: Final = "/v1.ExternalJWTSigner/"
FETCH_TIMEOUT: Final = 60.0
METADATA_TIMEOUT: Final = 10.0
SIGN_TIMEOUT: Final = 60.0
"""Seconds; a request for a token usually ends before, at its own deadline."""
UNKNOWN_KEY_TIMEOUT: Final = 10.0
"""Seconds that a request with a token of an unknown key waits for the keys."""
RETRY: Final = 10.0
"""Seconds between attempts to fetch the keys after a failure."""
MAX_KEY_ID: Final = 1024


class BadSignerAnswer(Exception):
    """The signer's answer breaks its contract. The text is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of an answer. ``excluded``: ids of those that external verifiers do not see.

    ``dated``: the time at which the signer read them, in seconds since the epoch. ``lasts``: seconds until it should be
    asked again.
    """

    verifying: tuple[jws.VerifyingKey, ...]
    excluded: frozenset[str]
    dated: float
    lasts: int


class JwtSigner:
    """The signer at a socket: a path, or @NAME for an abstract one. Calls are answered while ``run`` does."""

    def __init__(self, endpoint: str) -> None:
        self.metrics = SignerMetrics()
        self._channel = GrpcChannel(unix_socket(endpoint))
        self._keys = Keys((), frozenset(), 0.0, 0)
        self._until = -math.inf  # the time of the next fetch (trio)
        self._generation = 0
        self._fetched = 0  # fetches so far
        self._fetching: trio.Event | None = None

    # -- ExternalKeys -------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def verifying(self) -> Sequence[jws.VerifyingKey]:
        return self._keys.verifying

    @property
    def published(self) -> Sequence[jws.VerifyingKey]:
        return [key for key in self._keys.verifying if key.key_id not in self._keys.excluded]

    @property
    def max_age(self) -> int:
        return max(0, int(self._until - trio.current_time()))

    async def refresh(self) -> None:
        """Implement ExternalKeys. Concurrent calls share one fetch."""
        try:
            await self.fetch(UNKNOWN_KEY_TIMEOUT)
        except (GrpcError, BadSignerAnswer) as error:
            log.error("Error while syncing keys", extra={"err": str(error)})

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Implement ExternalKeys."""
        code = NOT_GRPC
        try:
            token = await self._sign(jws.payload(claims))
            code = "OK"
        except GrpcError as error:
            code = error.code
            raise SigningFailed(f"while signing jwt: {error}") from None
        except (BadSignerAnswer, ValueError) as error:
            raise SigningFailed(str(error)) from None
        finally:
            self.metrics.signed.labels(code).inc()
        return token

    def collectors(self) -> Sequence[Collector]:
        return self.metrics.collectors()

    # -- the tasks ----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry the calls, and fetch the keys when it is time, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._channel.run)
            task_status.started()
            while True:
                await trio.sleep_until(self._until)
                try:
                    await self.fetch(FETCH_TIMEOUT)
                except (GrpcError, BadSignerAnswer) as error:
                    problem = {"err": str(error)}
                    log.error("The keys of the external signer were not fetched; the old ones stay", extra=problem)
                    self._until = trio.current_time() + RETRY

    async def first_answers(self) -> int:
        """Fetch the keys, and return the longest lifetime of a token in seconds. Raises GrpcError, BadAnswer.

        ``run`` must not have started.
        """
        longest, problem = 0, None
        async with trio.open_nursery() as nursery:
            await nursery.start(self._channel.run)
            try:
                await self.fetch(FETCH_TIMEOUT)
                longest = await self._longest_lifetime()
            except (GrpcError, BadSignerAnswer) as error:
                problem = error  # raised outside of the nursery, which would wrap it
            nursery.cancel_scope.cancel()
        if problem is not None:
            raise problem
        return longest

    async def fetch(self, timeout: float) -> None:
        """Fetch the keys, or wait for a fetch under way. Raises GrpcError, BadAnswer."""
        before = self._fetched
        while self._fetching is not None:
            await self._fetching.wait()
        if self._fetched != before:
            return
        done = self._fetching = trio.Event()
        try:
            await self._fetch(timeout)
        finally:
            self._fetching = None
            done.set()

    async def _fetch(self, timeout: float) -> None:
        code = NOT_GRPC
        try:
            answer = await self._call("FetchKeys", b"", timeout)
            try:
                keys = keys_of(answer)
            except ValueError as error:
                raise BadSignerAnswer(str(error)) from None
            code = "OK"
        except GrpcError as error:
            code = error.code
            raise
        finally:
            self.metrics.fetched(code)
        self._fetched += 1
        self._until = trio.current_time() + keys.lasts
        self.metrics.dated.set(keys.dated)
        if replace(keys, lasts=0) != replace(self._keys, lasts=0):
            self._generation += 1
        self._keys = keys

    async def _longest_lifetime(self) -> int:
        answer = await self._call("Metadata", b"", METADATA_TIMEOUT)
        try:
            return signed_number(protobuf.number_of(answer, 1))
        except ValueError as error:
            raise BadSignerAnswer(str(error)) from None

    async def _sign(self, payload: str) -> str:
        answer = await self._call("Sign", protobuf.field(1, payload), SIGN_TIMEOUT)
        header, signature = protobuf.text_of(answer, 1), protobuf.text_of(answer, 2)
        try:
            key_id = key_id_of(header)
            if all(key.key_id != key_id for key in self._keys.verifying):
                await self.refresh()
            if key_id in self._keys.excluded:
                why = "is excluded from OIDC discovery docs"
                raise BadSignerAnswer(f"key used for signing JWT (kid: {key_id}) {why}")
        except BadSignerAnswer as error:
            raise BadSignerAnswer(f"while validating header: {error}") from None
        if not signature:
            raise BadSignerAnswer("empty signature returned")
        return f"{header}.{payload}.{signature}"

    async def _call(self, method: str, request: bytes, timeout: float) -> protobuf.Message:
        begun, code = time.perf_counter(), "OK"
        try:
            answer = await self._channel.unary(SERVICE + method, request, timeout=timeout, wait_for_ready=True)
            return protobuf.parse(answer)
        except GrpcError as error:
            code = error.code
            raise
        except ValueError as error:
            code = "Internal"
            raise GrpcError(code, str(error)) from None
        finally:
            self.metrics.seconds.labels(SERVICE + method, code).observe(time.perf_counter() - begun)


def keys_of(answer: protobuf.Message) -> Keys:
    """Return the keys of a FetchKeysResponse. Raises BadAnswer, ValueError."""
    lasts = signed_number(protobuf.number_of(answer, 3))
    if lasts <= 0:
        raise BadSignerAnswer(f"found invalid refresh hint ({lasts}s)")
    if 1 not in answer:
        raise BadSignerAnswer("found no keys")
    if 2 not in answer:
        raise BadSignerAnswer("invalid data timestamp: invalid nil Timestamp")
    dated = protobuf.parse(protobuf.bytes_of(answer, 2))
    found, excluded = [], set()
    for entry in answer[1]:
        if not isinstance(entry, bytes):
            raise BadSignerAnswer("found a public key that is no message")
        key = _key_of(message := protobuf.parse(entry))
        found.append(key)
        if protobuf.number_of(message, 3):
            excluded.add(key.key_id)
    seconds = signed_number(protobuf.number_of(dated, 1)) + protobuf.number_of(dated, 2) / 1e9
    return Keys(tuple(found), frozenset(excluded), seconds, lasts)


def _key_of(message: protobuf.Message) -> jws.VerifyingKey:
    key_id, der = protobuf.text_of(message, 1), protobuf.bytes_of(message, 2)
    if not 0 < len(key_id.encode()) <= MAX_KEY_ID:
        raise BadSignerAnswer(f'found invalid public key id "{key_id[:MAX_KEY_ID]}"')
    if not der:
        raise BadSignerAnswer("found empty public key")
    try:
        return replace(jws.verifying_key(load_der_public_key(der)), key_id=key_id)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadSignerAnswer(f"while parsing external public keys: {error}") from None


def key_id_of(header: str) -> str:
    """Return the id of the key in the header of a token: alg, kid and typ alone. Raises BadAnswer."""
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except ValueError:
        raise BadSignerAnswer("it is not JSON in base64url") from None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise BadSignerAnswer("while parsing header JSON: not an object of texts")
    if unknown := fields.keys() - {"alg", "kid", "typ"}:
        raise BadSignerAnswer(f'while parsing header JSON: json: unknown field "{min(unknown)}"')
    if fields.get("typ") != "JWT":
        raise BadSignerAnswer("bad type")
    key_id = str(fields.get("kid", ""))
    if not key_id:
        raise BadSignerAnswer("key id missing")
    if len(key_id.encode()) > MAX_KEY_ID:
        raise BadSignerAnswer("key id longer than 1 kb")
    if fields.get("alg") not in jws.ALGORITHMS:
        raise BadSignerAnswer(f'bad signing algorithm "{fields.get("alg", "")}"')
    return key_id


def signed_number(number: int) -> int:
    """Return an int64 of protobuf, of which negative ones are read as large ones."""
    return number - 2**64 if number >= 2**63 else number
