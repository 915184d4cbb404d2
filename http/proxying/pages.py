"""HTML pages of proxied servers: read whole, and their links rewritten. Long ones are rewritten in a thread."""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.fair_share import FairThreads
from kubechronicle.http.proxying.backend_request import AnswerHead, BackendFailed, BackendRequest
from kubechronicle.http.proxying.links import MAX_PAGE, LinkRewriter, unpacked

MOST_AT_ONCE: Final = 32 * 1024
"""Bytes of a page that is rewritten on the event loop: a millisecond."""
PAGES: Final = FairThreads(1)
"""The thread that rewrites longer ones. More would compete with the event loop for the interpreter's lock."""


def is_page(head: AnswerHead) -> bool:
    """Tell whether the links of an answer's body are to be rewritten."""
    return head.get("content-type").partition(";")[0].strip() == "text/html" and not head.get("location")


async def rewritten_page(asked: BackendRequest, head: AnswerHead, rewriter: LinkRewriter) -> bytes | None:
    """Return the page with rewritten links; None if it is in an unknown encoding or too long, and nothing is read.

    Raises BackendFailed. The request is over, unless the result is None.
    """
    encoding = head.get("content-encoding")
    if encoding not in ("", "gzip", "deflate") or (head.length or 0) > MAX_PAGE:
        return None
    page = bytearray()
    try:
        while part := await asked.next_part():
            page += part
            if len(page) > MAX_PAGE:
                raise BackendFailed(f"the page is longer than {MAX_PAGE} bytes")
    finally:
        asked.release()
    if len(page) <= MOST_AT_ONCE and not encoding:
        return rewriter.page(bytes(page))
    return await PAGES.run(_rewritten, bytes(page), encoding, rewriter)


def _rewritten(page: bytes, encoding: str, rewriter: LinkRewriter) -> bytes:
    text = unpacked(page, encoding)
    if text is None:
        raise BackendFailed("the page is damaged or too long")
    return rewriter.page(text)
