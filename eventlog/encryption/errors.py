"""Errors of encryption, in the words of kube-apiserver (k8s.io/apiserver/pkg/storage/value)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kubechronicle.eventlog.errors import TransformError

__all__ = ["KeyServiceError", "NeedsKey", "TransformError", "code_of", "joined"]

NO_STATUS: Final = "unknown-non-grpc"
"""The status of failures outside of key services, as metrics show it."""


class KeyServiceError(Exception):
    """A key service did not do what was asked. ``code``: the gRPC status, as "Unavailable"."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class NeedsKey(Exception):
    """A data key is not in memory. Await ``fetch()``, which raises nothing, and decrypt again."""

    def __init__(self, fetch: Callable[[], Awaitable[None]]) -> None:
        super().__init__("a data key has to be decrypted by its key service first")
        self.fetch = fetch


def code_of(error: Exception | None) -> str:
    """Return the status of an operation for metrics: OK, a gRPC status, or NO_STATUS."""
    return "OK" if error is None else getattr(error, "code", "") or NO_STATUS


def joined(errors: Sequence[TransformError]) -> TransformError:
    """Return one error for several, as k8s.io/apimachinery's aggregates read: texts once each, in brackets."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    if len(texts) == 1:
        return errors[0]
    return TransformError(f"[{', '.join(texts)}]", code=next((error.code for error in errors if error.code), ""))
