"""--emulated-version and --min-compatibility-version: texts, defaults and refusals."""

from __future__ import annotations

import re

import pytest

from kubechronicle.api.features.gates import DEFAULT, Release, effective_version


def test_defaults() -> None:
    assert effective_version([], []) == DEFAULT
    assert (str(DEFAULT.emulation), str(DEFAULT.compatibility), DEFAULT.emulates) == ("1.37", "1.36", False)
    older = effective_version(["kube=v1.35.0"], [])
    assert (older.emulation, older.compatibility, older.emulates) == (Release(1, 35), Release(1, 34), True)
    assert effective_version([" kube = 1.34"], []).compatibility == Release(1, 34)
    assert effective_version(["1.35"], ["1.35"]).compatibility == Release(1, 35)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", 'could not parse "abc" as version'),
        ("1", 'illegal version string "1"'),
        ("01.33", 'illegal zero-prefixed version component "01" in "01.33"'),
        ("1.33.2", "patch version not allowed, got: kube=1.33.2"),
        ("wardle=1.2", "component not registered: wardle"),
    ],
)
def test_bad_texts(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        effective_version([text], [])


def test_one_version_only() -> None:
    with pytest.raises(ValueError, match=r"^duplicate version flag, kube=1\.33 and kube=1\.34$"):
        effective_version(["1.33", "kube=1.34"], [])


def test_ranges() -> None:
    assert effective_version(["1.34"], ["1.34"]).problems() == []
    assert effective_version(["1.38"], []).problems() == ["emulation version 1.38 is not between [1.34, 1.37.0]"]
    assert effective_version(["1.35"], ["1.36"]).problems() == [
        "minCompatibilityVersion version 1.36 is not between [1.34, 1.35]"
    ]
