"""The statuses of gRPC (doc/statuscodes.md of the gRPC documentation), and the error of a call."""

from __future__ import annotations

from typing import Final

CODES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
    "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""Names of the status codes, by number, as grpc-go prints them."""

# The codes for answers without a grpc-status, by HTTP status (doc/http-grpc-status-mapping.md).
HTTP_CODES: Final = {
    400: "Internal",
    401: "Unauthenticated",
    403: "PermissionDenied",
    404: "Unimplemented",
    429: "Unavailable",
    502: "Unavailable",
    503: "Unavailable",
    504: "Unavailable",
}


class GrpcError(Exception):
    """A call without a result. Its text is that of grpc-go.

    ``code``: one of CODES.
    ``message``: the server's, or the reason on this side.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code = code
        self.message = message
