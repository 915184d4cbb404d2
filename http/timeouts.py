"""Time-outs of requests: the parameter ?timeout=, and errors that only tell of a cancelled request."""

from __future__ import annotations

import trio

from kubechronicle.api.errors import status
from kubechronicle.api.values import durations


def only_cancelled(error: BaseException) -> bool:
    """Tell whether an error holds nothing but the end of a cancel scope."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def seconds_of(text: str, limit: float) -> float:
    """Return the time-out of a request, at most ``limit``."""
    if not text:
        return limit
    try:
        seconds = durations.parse(text) / durations.SECOND
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from None
    return min(seconds, limit) if seconds > 0 else limit
