"""The position of a feed: the last revision that was delivered, and the file that keeps it across restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import orjson

from kubechronicle.ops.errors import OperatorError


class FeedPosition(NamedTuple):
    """``time``: the commit time of the revision, by which another log is recognised; "" if it is not known."""

    revision: int
    time: str = ""


class StateFile:
    """A file with the position. It is replaced as a whole, so that a crash leaves the old or the new one."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()

    def read(self) -> FeedPosition | None:
        """Return the position; None: there is no file yet. OperatorError."""
        try:
            found = orjson.loads(self._path.read_bytes())
            return FeedPosition(int(found["revision"]), str(found.get("time", "")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperatorError(f"cannot read {self._path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OperatorError(f"{self._path} is no state of a feed; name another --state file") from None

    def write(self, position: FeedPosition) -> None:
        """Keep the position, also if the machine crashes after this. OperatorError."""
        new = self._path.with_name(f".{self._path.name}.new")
        content = orjson.dumps({"revision": str(position.revision), "time": position.time}) + b"\n"
        try:
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise OperatorError(f"cannot write {self._path}: {error.strerror}") from None
