"""Errors of files in the data directory are the operator's; all others stay bugs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kubechronicle.ops.data_dir import reported
from kubechronicle.ops.errors import OperatorError

HOME = Path("/srv/chronicle")


def denied(path: str, code: int = errno.EACCES) -> OSError:
    return OSError(code, "Permission denied", path)


@pytest.mark.parametrize("path", ["/srv/chronicle", "/srv/chronicle/pki/ca.key", "/srv"])
def test_a_file_that_cannot_be_used_is_named(path: str) -> None:
    for error in (denied(path), ExceptionGroup("", [ExceptionGroup("", [denied(path)])])):
        with pytest.raises(OperatorError, match=r"^--data-dir /srv/chronicle: ") as refused, reported(HOME):
            raise error
        assert "Permission denied; choose a directory that the user " in str(refused.value)
        assert (path in str(refused.value)) or path == "/srv/chronicle"


@pytest.mark.parametrize(
    "error", [denied("/etc/passwd"), denied("/srv/chronicle/x", errno.EIO), OSError("no file"), ValueError("a bug")]
)
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, reported(HOME):
        raise error
    assert raised.value is error
