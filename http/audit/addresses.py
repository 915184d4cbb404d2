"""The addresses of a request, for its audit events."""

from __future__ import annotations

import ipaddress

from kubechronicle.http.messages import Headers


def source_addresses(headers: Headers, peer: str) -> list[str]:
    """Return the addresses of the client and the proxies, as far as they say so; the peer's, which is sure, is last.

    X-Forwarded-For, X-Real-Ip, the peer; without repetitions (SourceIPs of k8s.io/apimachinery ``pkg/util/net``).
    """
    forwarded, real = headers.get("x-forwarded-for"), headers.get("x-real-ip")
    if not forwarded and not real:
        return [peer] if peer else []
    found = [address for part in forwarded.split(",") if (address := _address(part))]
    address = _address(real)
    if address and address not in found:
        found.append(address)
    own = _address(peer)
    if own and (not found or found[-1] != own):
        found.append(own)
    return found


def _address(text: str) -> str:
    """Return an IP address in its usual form, "" for another text. Numbers may begin with zeros."""
    text = text.strip()
    if "." in text and ":" not in text:
        text = ".".join(part.lstrip("0") or "0" if part.isdecimal() else part for part in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
