"""Git ignores new data directories. Errors of their files are the operator's; all others stay bugs."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from kubechronicle.ops.data_dir import make_data_dir, reported
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


def test_git_ignores_a_new_directory_and_one_that_was_there_stays_as_it_is(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    make_data_dir(tmp_path)
    make_data_dir(tmp_path / "deep" / "data")
    for name in ("deep/data/ca.key", "mine.py"):
        (tmp_path / name).write_text("")
    status = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain", "--untracked-files=all"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert status.stdout == "?? mine.py\n"


def test_no_data_directory_is_in_the_repository() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not in a checkout")
    files = listed.stdout.splitlines()
    assert [name for name in files if name.endswith((".key", "PG_VERSION", "admin.kubeconfig"))] == []
