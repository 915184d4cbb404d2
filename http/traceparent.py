"""The trace that a request belongs to, for the requests that it causes (W3C Trace Context)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

TRACEPARENT: Final = "traceparent"
CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The header's value for requests that the present task makes to others; "": the request is not traced."""
