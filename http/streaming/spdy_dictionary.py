"""The dictionary that SPDY/3 compresses header blocks with (SPDY/3.1 §2.6.10.1), fixed by that draft.

It begins with words, each behind its length in four bytes, and ends with plain text.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = (
    "options | head | post | put | delete | trace | "
    "accept | accept-charset | accept-encoding | accept-language | accept-ranges | age | "
    "allow | authorization | cache-control | connection | content-base | content-encoding | "
    "content-language | content-length | content-location | content-md5 | content-range | content-type | "
    "date | etag | expect | expires | from | host | "
    "if-match | if-modified-since | if-none-match | if-range | if-unmodified-since | last-modified | "
    "location | max-forwards | pragma | proxy-authenticate | proxy-authorization | range | "
    "referer | retry-after | server | te | trailer | transfer-encoding | "
    "upgrade | user-agent | vary | via | warning | www-authenticate | "
    "method | get | status | 200 OK | version | HTTP/1.1 | "
    "url | public | set-cookie | keep-alive | origin"
)
_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authori"
    "tative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not "
    "Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug S"
    "ept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag"
    "e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(len(word).to_bytes(4, "big") + word.encode() for word in _WORDS.split(" | ")) + _TEXT.encode()
)
