"""Errors of requests to other servers, in the words of Go's net/http."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from kubechronicle.http.outgoing.networks import ProxyFailed

RESET: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


class AskError(Exception):
    """No usable answer. The text is for operators and never holds a credential.

    ``why``: the text without method and URL
    ``transient``: the connection broke, and a retry may help
    ``timed_out``: there was no answer within the timeout
    """

    def __init__(self, text: str, *, why: str = "", transient: bool = False, timed_out: bool = False) -> None:
        super().__init__(text)
        self.why = why or text
        self.transient = transient
        self.timed_out = timed_out


def shown(url: str) -> str:
    """Return the URL without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def failed(method: str, url: str, why: str, *, transient: bool = False, timed_out: bool = False) -> AskError:
    """Return an error with net/http's text: ``Post "https://host/path": connect: connection refused``."""
    text = f'{method.capitalize()} "{shown(url)}": {why}'
    return AskError(text, why=why, transient=transient, timed_out=timed_out)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                yield from _causes(each)
        yield error
        error = error.__cause__ or error.__context__


def reason(error: Exception) -> str:
    """Return the text of the innermost cause."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ProxyFailed):
            return str(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"tls: failed to verify certificate: {cause.verify_message}"
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"tls: {cause.reason or cause}"
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return f"connect: {os.strerror(cause.errno).lower()}"
    return next((str(cause) for cause in causes if str(cause)), type(error).__name__)


def is_reset(error: Exception) -> bool:
    """Tell whether a connection was reset while it was made. A refused one is not."""
    return any(isinstance(cause, OSError) and cause.errno in RESET for cause in _causes(error))
