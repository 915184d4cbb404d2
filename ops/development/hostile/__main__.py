"""`make hostile`: attack this server and a kube-apiserver in turns, and print the longest silence under each attack.

The exit code is 1 if an attack held the event loop of this server for more than MOST seconds of CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.hostile import table
from kubechronicle.ops.development.hostile.attacks import ATTACKS, Attack
from kubechronicle.ops.development.hostile.light_client import Silence, process_seconds
from kubechronicle.ops.development.hostile.site import Site, our_site, reference_site
from kubechronicle.ops.development.hostile.table import Measured

MOST: Final = 0.1
"""Seconds of CPU for which no request may hold the event loop."""
TRIES: Final = 3
"""Measurements of an attack that is above MOST. The least counts, as others on the machine only add to it."""
DOUBTFUL: Final = 0.3
"""Seconds of CPU that the load of a machine cannot explain."""
IDLE: Final = 0.2
"""The share of a core below which a server has done with an attack."""
LOOK: Final = 0.5
"""Seconds between two looks at that."""
MOST_WAIT: Final = 20.0
"""Seconds to wait for that. A server that goes on is started again."""
FIRST_WAIT: Final = 90.0
"""The same after a start: a kube-apiserver makes its documents for some time."""
PAGE: Final = reference.ROOT / "docs" / "security.md"


class Side:
    """One of the two servers. It is started again when an attack has ended it, or keeps it busy."""

    def __init__(self, start: Callable[[], AbstractContextManager[Site]]) -> None:
        self._start = start
        self._open = contextlib.ExitStack()
        self._site: Site | None = None

    def site(self) -> Site:
        if self._site is None or not process_seconds(self._site.target.pid):
            self.close()
            self._site = self._open.enter_context(self._start())
            rest(self._site, FIRST_WAIT)
        return self._site

    def close(self) -> None:
        self._site = None
        self._open.close()


def rest(site: Site, most: float = MOST_WAIT) -> bool:
    """Wait until the server uses little CPU. Return False if it does not cease within so many seconds."""
    until = time.monotonic() + most
    used = site.busy_seconds()
    while time.monotonic() < until:
        time.sleep(LOOK)
        before, used = used, site.busy_seconds()
        if used - before < IDLE * LOOK:
            return True
    return False


def measure(side: Side, attack: Attack) -> Measured:
    """Attack the server while a light client polls it, and until it rests again."""
    site = side.site()
    attack.prepare(site)
    site.turn += 1
    rest(site)
    with site.light() as light:
        light.begin()
        try:
            answers = attack.run(site)
        except OSError as error:
            answers = type(error).__name__  # a handshake that was not answered
        rests = rest(site)
        if not site.busy_seconds():
            return Measured(Silence(failures=1), f"{answers}; the server ended", ended=True)
        silence = light.end()
    if not rests:
        side.close()
        answers += f"; busy for {MOST_WAIT:g} s"
    return Measured(silence, answers)


def measure_often(side: Side, attack: Attack) -> Measured:
    """Measure, and again while the server seems to be above the limit."""
    best = measure(side, attack)
    for _ in range(TRIES - 1):
        if not MOST < best.cpu() < DOUBTFUL:
            break
        best = min(best, measure(side, attack), key=Measured.cpu)
    return best


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make hostile", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="attacks whose names contain one of these"
    )
    parser.add_argument("--reference", action="store_true", help="attack a kube-apiserver, too; it is built if missing")
    parser.add_argument("--write", action="store_true", help=f"put the measured rows into {PAGE.name}")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    chosen = [each for each in ATTACKS if not options.only or any(word in each.name for word in options.only)]
    if not chosen:
        print(f"hostile: no attack has a name with {' or '.join(options.only)}", file=sys.stderr)
        return 2
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(contextlib.closing(Side(our_site)))
        theirs = None
        if options.reference:
            try:
                reference.programs()
                theirs = stack.enter_context(contextlib.closing(Side(reference_site)))
            except reference.Unavailable as error:
                print(f"hostile: without a kube-apiserver: {error}", file=sys.stderr)
        over = run(chosen, ours, theirs, options.page, write=options.write)
    print(f"hostile: {len(over)} of {len(chosen)} attacks above {table.milliseconds(MOST)} of CPU", *over, sep="\n  ")
    return 1 if over else 0


def run(attacks: Sequence[Attack], ours: Side, theirs: Side | None, page: Path, *, write: bool) -> list[str]:
    """Print the row of each attack, and write it into the page. Return the names of attacks above the limit."""
    rows, over = table.rows_of(page.read_text()), []
    print(table.text_of([]), flush=True)
    for attack in attacks:
        mine = measure_often(ours, attack)
        other = measure(theirs, attack) if theirs is not None and not attack.ours else None
        row = rows.setdefault(attack.name, table.Row(attack.name, attack.by))
        row.take(mine, other)
        print(row.line(), flush=True)
        if write:
            table.write(page, rows, [each.name for each in ATTACKS])
        if mine.above(MOST):
            over.append(attack.name)
    return over


if __name__ == "__main__":
    sys.exit(main())
