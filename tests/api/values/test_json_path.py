"""The syntax of JSONPath."""

from __future__ import annotations

import pytest

from kubechronicle.api.values.json_path import problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "{.spec}",
        "{spec.validations[0].expression} and {$.x}",
        "{..name}{@.a['b c']}",
        "{.items[*].metadata.name}{.items[0,1]}{.a[-1:]}{.a[0:2:1]}",
        '{range .items[?(@.a=="x")]}{"\\n"}{end}',
        "{.a[?(@.b)]}{1.5}{-3}{true}",
        "{.a\\.b}{'it\\'s'}",
    ],
)
def test_templates_without_errors(text: str) -> None:
    assert problem(text) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{10.0.0.1}", "cannot parse number 10.0.0.1"),
        ("{" + "9" * 400 + "}", "cannot parse number " + "9" * 400),
        ("{+}", "cannot parse number +"),
        ("{.a", "unclosed action"),
        ("{.a\n}", "unclosed action"),
        ("{!}", "unrecognized character in action: U+0021 '!'"),
        ("{\x01}", "unrecognized character in action: U+0001"),
        ("{....a}", "invalid multiple recursive descent"),
        ("{.a[0}", "unterminated array"),
        ("{.a[b]}", "invalid array index b"),
        ("{.a[0,b]}", "invalid array index b"),
        ("{.a[-]}", "array index - is not a number"),
        ("{.a[99999999999999999999]}", "array index 99999999999999999999 is not a number"),
        ("{.a[?(@.b}", "unterminated filter"),
        ("{.a[?(@.b)}", "unclosed array expect ]"),
        ("{.a[?(@.b==1.2.3)]}", "cannot parse number 1.2.3"),
        ("{'a}", "unterminated quoted string"),
        ("{'\\q'}", "unquote string '\\q' error invalid syntax"),
    ],
)
def test_errors_in_the_words_of_kubernetes(text: str, found: str) -> None:
    assert problem(text) == found
