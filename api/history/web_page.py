"""The web page about history: its path, and the headers that confine it in a browser.

Two programs send them: the server (http/handlers/ui.py), and the client's proxy on the loopback address
(ops/client/commands/ui.py).
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/ui/"
# Scripts and styles come from files only, never from a page; no requests to other hosts; no framing.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final[tuple[tuple[str, str], ...]] = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache, private"),
    ("vary", "accept-encoding"),
)
