"""Mail addresses as Go reads one (net/mail, ParseAddress): RFC 5322 with letters beyond ASCII.

A name may stand before an address in angle brackets, comments in parentheses between, and a group may hold one address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_ATOM: Final = re.compile(r'[^\x00-\x20\x7f()<>\[\]:;@\\,"]+')
_QUOTED: Final = re.compile(r'"((?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_LITERAL: Final = re.compile(r"\[([^\x00-\x20\x7f\[\]\\]*)\]")
_ENCODED: Final = re.compile(r"=\?([^?]*)\?([^?]*)\?(.*)\?=", re.DOTALL)
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_CHARSETS: Final = frozenset(("utf-8", "iso-8859-1", "us-ascii"))


class _MailError(ValueError):
    """A text that is no mail address."""


def is_mail_address(text: str) -> bool:
    """Return whether the text is one mail address.

    >>> is_mail_address("Ann <ann@example.com>"), is_mail_address("ann"), is_mail_address("ann@example..com")
    (True, False, False)
    """
    try:
        _AddressParser(text).single()
    except _MailError:
        return False
    return True


class _AddressParser:
    """The text, and the place up to which it is read."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def single(self) -> None:
        """Read one address, and nothing after it."""
        number = self._address(group=True)
        self._skip_comments()
        if self.at < len(self.text) or number != 1:
            raise _MailError

    def _address(self, *, group: bool) -> int:
        """Read an address or, if allowed, a group. Return the number of addresses."""
        self._skip_blanks()
        if self.at >= len(self.text):
            raise _MailError
        start = self.at
        try:
            self._specification()
        except _MailError:
            self.at = start
        else:
            self._skip_blanks()
            if self._peek() == "(":
                self._name_comment()
            return 1
        if self._peek() != "<":
            self._phrase()
        self._skip_blanks()
        if group and self._consume(":"):
            return self._group()
        if not self._consume("<"):
            raise _MailError
        self._specification()
        if not self._consume(">"):
            raise _MailError
        return 1

    def _group(self) -> int:
        self._skip_blanks()
        if self._consume(";"):
            self._skip_comments()
            return 0
        number = 0
        while True:
            number += self._address(group=False)
            self._skip_comments()
            if self._consume(";"):
                self._skip_comments()
                return number
            if not self._consume(","):
                raise _MailError

    def _specification(self) -> None:
        """Read ``local-part@domain``."""
        self._skip_blanks()
        if self._peek() == '"':
            if not self._quoted():
                raise _MailError
        else:
            self._atom(strict=True)
        if not self._consume("@"):
            raise _MailError
        self._skip_blanks()
        if self._peek() == "[":
            found = _LITERAL.match(self.text, self.at)
            if found is None or "%" in found[1]:
                raise _MailError
            try:
                ipaddress.ip_address(found[1])
            except ValueError:
                raise _MailError from None
            self.at = found.end()
        else:
            self._atom(strict=True)

    def _phrase(self) -> None:
        """Read one or more words before an address. Encoded words count when another word or the end follows."""
        words, encoded = 0, False
        while True:
            if words:
                self._skip_comments()
            self._skip_blanks()
            if self.at >= len(self.text):
                return
            content = None
            try:
                if self._peek() == '"':
                    self._quoted()
                else:
                    content = _encoded_content(self._atom(strict=False))
            except _MailError:
                if words or encoded:
                    return
                raise
            if content is None:
                words, encoded = words + 1, False
            else:
                encoded = encoded or bool(content)

    def _atom(self, *, strict: bool) -> str:
        found = _ATOM.match(self.text, self.at)
        if found is None:
            raise _MailError
        atom = found.group()
        self.at = found.end()
        if strict and (atom[0] == "." or atom[-1] == "." or ".." in atom):
            raise _MailError
        return atom

    def _quoted(self) -> str:
        found = _QUOTED.match(self.text, self.at)
        if found is None:
            raise _MailError
        self.at = found.end()
        return found[1]

    def _name_comment(self) -> None:
        start = self.at + 1
        self._comment()
        comment = re.sub(r"\\(.)", r"\1", self.text[start : self.at - 1], flags=re.DOTALL)
        for word in re.split("[ \t]+", comment):
            _encoded_content(word)

    def _skip_comments(self) -> None:
        self._skip_blanks()
        while self._peek() == "(":
            self._comment()
            self._skip_blanks()

    def _comment(self) -> None:
        """Read a comment in parentheses, which may be nested."""
        depth, at, text = 0, self.at, self.text
        while at < len(text):
            if text[at] == "\\" and at + 1 < len(text):
                at += 1
            elif text[at] == "(":
                depth += 1
            elif text[at] == ")":
                depth -= 1
            at += 1
            if not depth:
                self.at = at
                return
        raise _MailError

    def _skip_blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self.at += 1

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _consume(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self.at += 1
        return True


def _encoded_content(word: str) -> str | None:
    """Return the encoded content of a word (RFC 2047), None for plain text, as a malformed encoding is.

    _MailError if Go cannot read the character set.
    """
    found = _ENCODED.fullmatch(word)
    if found is None or word.count("?") != 4:
        return None
    charset, encoding, text = found.groups()
    if not charset or not _decodes(encoding, text):
        return None
    if charset.lower() not in _CHARSETS:
        raise _MailError
    return text


def _decodes(encoding: str, text: str) -> bool:
    if encoding in ("B", "b"):
        return _BASE64.fullmatch(re.sub("[\r\n]", "", text)) is not None
    if encoding not in ("Q", "q"):
        return False
    return re.fullmatch(r"(?:=[0-9A-Fa-f]{2}|[\t\n\r -<>-~])*", text) is not None
