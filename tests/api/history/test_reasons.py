"""Reasons: their texts, their place in a URL, and change-causes."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.reasons import (
    CHANGE_CAUSE,
    MAX_REASON,
    change_cause,
    has_text,
    parse_reason,
    reason_prefix,
    split_reason,
)


@given(st.text(min_size=1).filter(lambda text: text.isprintable() and not text.isspace()))
def test_any_reason_survives_a_url_that_is_encoded_anew(reason: str) -> None:
    prefix = reason_prefix(reason)
    anew = quote(unquote(prefix))  # as client-go sends the path of its server's URL
    for sent in (prefix, anew):
        assert split_reason(f"{sent}/api/v1/pods") == (reason, "/api/v1/pods")
    assert split_reason(prefix) == (reason, "/")


@pytest.mark.parametrize("path", ["/api/v1/pods", "/because/", "/because//api", "/%62ecause/x/api", "/becausex/api"])
def test_other_paths_stay_as_they_are(path: str) -> None:
    assert split_reason(path) == ("", path)


@pytest.mark.parametrize("text", ["a\nb", "a\x00", "\u202eabc", "\ufffd", "é" * (MAX_REASON // 2 + 1)])
def test_bad_reasons(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_reason(text)


def test_good_reasons() -> None:
    assert parse_reason(" \tticket 42 ") == "ticket 42"
    assert parse_reason("é" * (MAX_REASON // 2)) == "é" * (MAX_REASON // 2)
    assert has_text("Ticket 42", "TICKET")
    assert not has_text("", "a")


def test_the_change_that_sets_a_cause() -> None:
    def caused(cause: object) -> dict[str, object]:
        return {"metadata": {"annotations": {CHANGE_CAUSE: cause}}}

    assert change_cause(None, caused("a")) == "a"
    assert change_cause({"metadata": {}}, caused("a")) == "a"
    assert change_cause(caused("b"), caused("a")) == "a"
    assert change_cause(caused("a"), caused("a")) == ""
    assert change_cause(caused("a"), {"metadata": {}}) == ""
    assert change_cause(None, caused(7)) == ""
    assert change_cause(None, {"metadata": {"annotations": None}}) == ""
    assert change_cause(None, caused("é" * MAX_REASON)) == "é" * (MAX_REASON // 2)
