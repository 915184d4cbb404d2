"""Words of operation ids, tags and descriptions, made of the names of groups, versions and kinds."""

from __future__ import annotations


def identifier(text: str, *, capital: bool) -> str:
    """Return ``rbac.authorization`` as rbacAuthorization, or RbacAuthorization with ``capital``.

    Characters other than letters, digits and ``_`` are dropped, also a digit in front, and the next letter is a capital
    (apiserver, ToValidOperationID)."""
    made = []
    for at, letter in enumerate(text):
        if letter.isalpha() or letter == "_" or (at and letter.isdigit()):
            made.append(letter.upper() if capital else letter)
            capital = False
        else:
            capital = True
    return "".join(made)


def capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def group_words(group: str, version: str = "") -> str:
    """Return a group and its version for operation ids: CoreV1, RbacAuthorizationV1."""
    return identifier(group.removesuffix(".k8s.io") or "core", capital=True) + identifier(version, capital=True)


def tag(group: str, version: str = "") -> str:
    words = identifier(group.removesuffix(".k8s.io") or "core", capital=False)
    return f"{words}_{identifier(version, capital=False)}" if version else words


def article(kind: str) -> str:
    """Return the article before a kind: " a ", " an ", and " " before a plural."""
    if kind.endswith("s") and not kind.endswith("ss"):
        return " "
    return " an " if kind[:1].lower() in "aeiou" else " a "
