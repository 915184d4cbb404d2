"""The user account of the embedded Postgres, which refuses to run as root."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

# Tried in this order. FALLBACK_ID needs no entry in /etc/passwd: distroless images have none.
ACCOUNT_NAMES = ("postgres", "nobody")
FALLBACK_ID = 65534


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Check by mode bits that the user may read and execute the file and enter all folders above it."""
        resolved = path.resolve()
        return self._may(resolved, read=True) and all(self._may(parent, read=False) for parent in resolved.parents)

    def _may(self, path: Path, *, read: bool) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        wanted = (stat.S_IROTH if read else 0) | stat.S_IXOTH
        return (status.st_mode >> shift) & wanted == wanted


def account_for(cluster: Path) -> Account | None:
    """Return the account for a cluster: its owner if that is not root, otherwise the first that exists.

    None if this process is not root: then Postgres runs as the same user.
    """
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ACCOUNT_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(uid=FALLBACK_ID, gid=FALLBACK_ID)


def give(directory: Path, account: Account | None) -> None:
    """Make the account the owner of the whole folder, so that a cluster restored by root starts."""
    if account is None:
        return
    for parent, directories, files in os.walk(directory):
        for path in [parent, *(os.path.join(parent, name) for name in directories + files)]:
            status = os.lstat(path)
            if (status.st_uid, status.st_gid) != (account.uid, account.gid):
                os.lchown(path, account.uid, account.gid)
