"""An external signer of service account tokens, for tests (k8s.io/externaljwt v1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.http.authentication import jws
from tests.support.encryption.grpc_server import GrpcServer


class SignerServer(GrpcServer):
    """Signs with ``current``, and tells the public keys of ``keys``. Each can be changed while it serves."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, jws.SigningKey] = {}
        self.excluded: set[str] = set()
        self.longest = 86400
        self.hint = 600
        self.header: Mapping[str, Any] = {}
        self.fetches = 0
        self.rotate("first")
        self.unary = {"Sign": self._sign, "FetchKeys": self._fetch_keys, "Metadata": self._metadata}

    def rotate(self, name: str) -> None:
        """Sign with a new key of this id from now on."""
        self.current = name
        self.keys[name] = jws.signing_key(ec.generate_private_key(ec.SECP256R1()))

    def _sign(self, request: bytes) -> bytes:
        payload = protobuf.text_of(protobuf.parse(request), 1)
        fields = {"alg": "ES256", "kid": self.current, "typ": "JWT", **self.header}
        header = jws.encode(orjson.dumps(fields))
        signature = self.keys[self.current].signature(f"{header}.{payload}".encode())
        return protobuf.field(1, header) + protobuf.field(2, jws.encode(signature))

    def _fetch_keys(self, _: bytes) -> bytes:
        self.fetches += 1
        answer = b""
        for name, key in self.keys.items():
            der = key.verifying.public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            fields = protobuf.field(1, name) + protobuf.field(2, der) + protobuf.field(3, int(name in self.excluded))
            answer += protobuf.field(1, fields)
        return answer + protobuf.field(2, protobuf.field(1, int(time.time()))) + protobuf.field(3, self.hint)

    def _metadata(self, _: bytes) -> bytes:
        return protobuf.field(1, self.longest)
