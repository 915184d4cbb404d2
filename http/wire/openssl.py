"""Two settings of OpenSSL that Python's `ssl` does not offer, made with OpenSSL's own functions.

    accept_any_certificate    a client's certificate is requested, and verified later, by the authenticators
    set_groups                the groups of the key exchange (RFC 8446 §4.2.7) that the server accepts

The functions are those of the library that `ssl` itself has loaded. An SSLContext holds OpenSSL's context as its first
member, in every CPython so far. An interpreter with OpenSSL built in does not show its functions:
there, nothing is set, and the caller goes on with what `ssl` offers.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys
from collections.abc import Sequence
from typing import Any, Final

TESTED: Final = (3, 11), (3, 14)
"""The first and the last version of CPython whose SSLContext is known."""
_SET_GROUPS_LIST: Final = 92  # SSL_CTRL_SET_GROUPS_LIST
_VERIFY: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def accept_any_certificate(context: ssl.SSLContext) -> bool:
    """Complete handshakes whatever the chain of the client's certificate. False: that cannot be set here.

    OpenSSL still makes sure that the client has the certificate's private key.
    """
    library = _library()
    if library is None:
        return False
    library.SSL_CTX_set_cert_verify_callback(_pointer(context), _ACCEPT, None)
    return True


def set_groups(context: ssl.SSLContext, groups: Sequence[str]) -> str:
    """Accept these groups alone, by OpenSSL's names. Return the problem, "" for none."""
    library = _library()
    if library is None:
        return "this Python has OpenSSL built in, which does not let them be chosen"
    for group in groups:
        if library.SSL_CTX_ctrl(_pointer(context), _SET_GROUPS_LIST, 0, group.encode()) != 1:
            return f"{ssl.OPENSSL_VERSION} has no {group}"
    library.SSL_CTX_ctrl(_pointer(context), _SET_GROUPS_LIST, 0, ":".join(groups).encode())
    return ""


def _library() -> Any:
    """Return the functions of the OpenSSL of `ssl`; None: they cannot be called."""
    file = getattr(_ssl, "__file__", None)
    if file is None or sys.implementation.name != "cpython" or not TESTED[0] <= sys.version_info[:2] <= TESTED[1]:
        return None
    try:
        library = ctypes.CDLL(file)  # loaded already; its own dependencies are searched, and no other library
        library.SSL_CTX_set_cert_verify_callback.argtypes = [ctypes.c_void_p, _VERIFY, ctypes.c_void_p]
        library.SSL_CTX_set_cert_verify_callback.restype = None
        library.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p]
        library.SSL_CTX_ctrl.restype = ctypes.c_long
    except (OSError, AttributeError):
        return None
    return library


def _pointer(context: ssl.SSLContext) -> int | None:
    """Return the address of OpenSSL's context: the first member of the object."""
    return ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value


def _accept(_store: int | None, _argument: int | None) -> int:
    return 1


_ACCEPT: Final = _VERIFY(_accept)
