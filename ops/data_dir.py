"""The data directory: how it is made, and errors of its files, which are the operator's and reported in one line."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubechronicle.ops.errors import OperatorError

_MISTAKES: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT}
)


def make_data_dir(data_dir: Path) -> None:
    """Make the directory if it is missing. Git ignores a new one: it has private keys, often within a checkout."""
    if not data_dir.is_dir():
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / ".gitignore").write_text("*\n")


@contextmanager
def reported(data_dir: Path) -> Iterator[None]:
    """Raise OperatorError for a file of the data directory that cannot be read or written."""
    try:
        yield
    except (OSError, BaseExceptionGroup) as error:
        found = _file_error(error, data_dir)
        if found is None:
            raise
        place = "" if Path(found.filename) == data_dir else f"{found.filename}: "
        raise OperatorError(
            f"--data-dir {data_dir}: {place}{found.strerror}; choose a directory that the user {_user()} owns"
        ) from error


def _file_error(error: BaseException, data_dir: Path) -> OSError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := _file_error(part, data_dir))), None)
    if not isinstance(error, OSError) or error.errno not in _MISTAKES or not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    inside = path.is_relative_to(data_dir) or data_dir.is_relative_to(path)
    return error if inside else None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
