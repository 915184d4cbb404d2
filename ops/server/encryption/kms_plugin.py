"""A key service behind a Unix socket: the gRPC protocol of KMS plugins (k8s.io/kms/apis/v2/api.proto).

Status   {}                                                 -> version 1, healthz 2, key_id 3
Encrypt  plaintext 1, uid 2                                 -> ciphertext 1, key_id 2, annotations 3
Decrypt  ciphertext 1, uid 2, key_id 3, annotations 4       -> plaintext 1
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.eventlog.encryption.errors import KeyServiceError
from kubechronicle.eventlog.encryption.kms import EncryptedKey, Status
from kubechronicle.http.outgoing.grpc.channel import GrpcChannel, GrpcError, unix_socket

SERVICE: Final = "/v2.KeyManagementService/"


class KmsPlugin:
    """``endpoint``: unix:///path, or unix:///@name for an abstract socket. ``timeout``: seconds for each call.

    A plugin that is not there yet is waited for within the timeout, as kube-apiserver does.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        path = unquote(urlsplit(endpoint).path)
        self._timeout = timeout
        self.channel = GrpcChannel(unix_socket(path[1:] if path.startswith("/@") else path))

    async def status(self) -> Status:
        answer = await self._call("Status", b"")
        return Status(protobuf.text_of(answer, 1), protobuf.text_of(answer, 2), protobuf.text_of(answer, 3))

    async def encrypt(self, uid: str, plaintext: bytes) -> EncryptedKey:
        answer = await self._call("Encrypt", protobuf.field(1, plaintext) + protobuf.field(2, uid))
        return EncryptedKey(protobuf.bytes_of(answer, 1), protobuf.text_of(answer, 2), protobuf.map_of(answer, 3))

    async def decrypt(self, uid: str, key: EncryptedKey) -> bytes:
        request = protobuf.field(1, key.data) + protobuf.field(2, uid) + protobuf.field(3, key.key_id)
        return protobuf.bytes_of(await self._call("Decrypt", request + protobuf.map_field(4, key.annotations)), 1)

    async def _call(self, method: str, request: bytes) -> protobuf.Message:
        try:
            answer = await self.channel.unary(SERVICE + method, request, timeout=self._timeout, wait_for_ready=True)
            return protobuf.parse(answer)
        except GrpcError as error:
            raise KeyServiceError(error.code, str(error)) from None
        except ValueError as error:
            raise KeyServiceError("Internal", f"rpc error: code = Internal desc = {error}") from None
