"""Header fields: lookups after removals and replacements."""

from __future__ import annotations

from kubechronicle.http.headers import Headers

FIELDS = [("Accept", "a"), ("accept", "b"), ("X-Remote-Extra-Team", "ops"), ("Impersonate-User", "jane"), ("Host", "h")]


def test_a_prefix_is_found_until_its_fields_are_removed() -> None:
    headers = Headers(FIELDS)
    assert headers.has_prefix("impersonate-")
    assert not headers.has_prefix("mpersonate-")
    copy = headers.copy()
    copy.remove(frozenset({"impersonate-user"}), ("x-remote-extra-", "x-other-"))
    assert not copy.has_prefix("impersonate-")
    assert [name for name, _ in copy] == ["accept", "accept", "host"]
    assert headers.has_prefix("x-remote-extra-")  # those that were copied stay
    copy.replace("impersonate-uid", "1")
    assert copy.has_prefix("impersonate-")
    copy.remove(frozenset(), ("impersonate-",))
    assert "impersonate-uid" not in copy


def test_all_values_of_a_field_are_returned() -> None:
    headers = Headers(FIELDS)
    assert headers.get_all("ACCEPT") == ["a", "b"]
    assert headers.get_all("host") == ["h"]
    assert headers.get_all("missing") == []
    assert Headers([("a", "1"), ("b", "2")]).get_all("B") == ["2"]
