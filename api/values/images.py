"""Names of container images, as the distribution project's reference parser reads them.

Example: ``registry.example.com:5000/team/app:v1@sha256:…``. A name without a registry is one of docker.io.
"""

from __future__ import annotations

import re
from typing import Final

MAX_PATH: Final = 255
"""The longest path of an image within its registry, in characters."""

DEFAULT_TAG: Final = "latest"

_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REFERENCE: Final = re.compile(
    rf"(?:(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?"
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<algorithm>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*):(?P<digest>[0-9a-fA-F]{32,}))?\Z"
)
_IDENTIFIER: Final = re.compile(r"[a-f0-9]{64}\Z")
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_HEXADECIMAL: Final = re.compile(r"[a-f0-9]+\Z")


def _normalized(image: str) -> str:
    """Return the image's name with its registry."""
    first, slash, rest = image.partition("/")
    domain, remote = "docker.io", image
    if slash and first == "index.docker.io":
        remote = rest
    elif slash and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        domain, remote = first, rest
    if domain == "docker.io" and "/" not in remote:
        remote = f"library/{remote}"
    return f"{domain}/{remote}"


def tag_of(image: str) -> str:
    """Return the tag of an image: ``latest`` without tag and digest, "" with a digest alone or if it is no name."""
    if _IDENTIFIER.match(image):
        return ""
    found = _REFERENCE.match(_normalized(image))
    if found is None or len(found["path"]) > MAX_PATH:
        return ""
    digest = found["digest"]
    if digest is None:
        return found["tag"] or DEFAULT_TAG
    if len(digest) != _DIGEST_LENGTHS.get(found["algorithm"]) or not _HEXADECIMAL.match(digest):
        return ""
    return found["tag"] or ""
