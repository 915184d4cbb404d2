"""A session on a page: one bash runs the commands of its console blocks in order, and each output is compared.

The folder of the session has the data of the server in `data`, as after the README's `make serve`.
"""

from __future__ import annotations

import contextlib
import os
import pty
import selectors
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import BINARIES, PATIENCE, ROOT, eventually

from documents import shown_output
from documents.pages import Command, Part, parts

# Set: the set-up of a page waits, so that ages in its outputs look like those of a real night.
PACED = bool(os.environ.get("KUBECHRONICLE_PACED_PAGES"))
LONGEST = 600.0 if PACED else PATIENCE  # seconds for one command
# Functions for the unseen commands: `moment SHOWN` says that SHOWN in the page means now (a full minute, if paced);
# `as USER COMMAND…` runs a command with a certificate of the user; `pause SECONDS` waits if ages shall look real.
PRELUDE = f"""
set +o history
moment() {{
    form=%Y-%m-%dT%H:%M:%S.%6NZ
    if [ {int(PACED)} = 1 ]; then
        sleep $((60 - 10#$(date +%S)))
        case $1 in *T*) form=%Y-%m-%dT%H:%MZ ;; *) form=%H:%M ;; esac
    fi
    echo "$1 $(date -u +$form)" >> "$HOME/moments"
}}
as() {{
    [ -e "$HOME/$1.config" ] || kubechronicle kubeconfig --data-dir "$PLACE/data" --user "$1" > "$HOME/$1.config"
    KUBECONFIG="$HOME/$1.config" "${{@:2}}"
}}
pause() {{ {"sleep" if PACED else ":"} "$1"; }}
"""


class Bash:
    """One shell, in which directories and variables stay from command to command."""

    def __init__(self, place: Path, home: Path, environment: dict[str, str]) -> None:
        self._out = home / "output"
        self._place, self._environment = place, environment
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # keep a Ctrl-C for the tests from the shell
        )
        self._ready = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._ready.register(self._process.stdout, selectors.EVENT_READ)
        self.run(PRELUDE)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command. Return its exit code, and all that it has printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} >{self._out} 2>&1 </dev/null; echo $?\n")
        self._process.stdin.flush()
        if not self._ready.select(LONGEST):
            raise AssertionError(f"{command} still runs after {LONGEST:.0f} s: {self._out.read_text()}")
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"bash has ended: {command}: {self._out.read_text()}")
        return int(line), self._out.read_text(errors="replace")

    def in_terminal(self, command: str, typed: str) -> str:
        """Run a command in a terminal of its own, and type an answer when it asks. Return all that it has printed."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._place,
            env=self._environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ):
            os.close(theirs)
            output, asked = "", False
            with contextlib.suppress(OSError):  # EIO: the command has ended
                while chunk := os.read(ours, 65536):
                    output += chunk.decode()
                    if not asked and output.endswith("] "):
                        asked = True
                        os.write(ours, f"{typed}\n".encode())
            os.close(ours)
        return output

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 15)
        self._process.wait(PATIENCE)


@dataclass
class Session:
    """``values``: the real values of times, revisions and so on that the page has shown. ``fresh``: the lines of the
    page that a real run would have in other words or with other values, by the index of the first."""

    place: Path
    home: Path
    page: Path
    bash: Bash
    values: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    fresh: list[tuple[int, int, list[str]]] = field(default_factory=list)

    def run(self) -> None:
        """Run all parts of the page. ``wrong`` lists the differences afterwards."""
        for part in parts(self.page):
            if part.kind == "before":
                code, output = self.bash.run(f"( set -e\n{shown_output.retyped(part.text, self.values)}\n)")
                assert code == 0, f"{part.place}: {output}"
                self._learn_moments()
                for number, line in enumerate(part.lines, part.line):
                    if line.startswith("moment "):
                        self.fresh.append((number, number + 1, [shown_output.retyped(line, self.values)]))
            elif "file" in part.markers:
                file = self.place / part.markers["file"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(part.text)
            elif part.is_run:
                for command in part.commands():
                    self._take(part, command)

    def _learn_moments(self) -> None:
        moments = self.home / "moments"
        if moments.exists():
            self.values |= dict(line.split() for line in moments.read_text().splitlines())

    def _take(self, part: Part, command: Command) -> None:
        text = shown_output.retyped(command.text, self.values)
        if "background" in part.markers:
            output = self._in_background(text, command.output)
        elif "terminal" in part.markers:
            output = self.bash.in_terminal(text, part.markers["terminal"])
        else:
            code, output = self.bash.run(text)
            if not command.output and code:
                output += f"exit code {code}\n"
        output = self._plain(output)
        match = shown_output.compare(command.output, output)
        if match is None:
            place = f"{part.page.relative_to(ROOT)}:{command.first + 1}"
            shown = "\n".join(command.output)
            self.wrong.append(f"{place}: $ {text}\nthe page shows:\n{shown}\nit printed:\n{output}")
        else:
            self.values = match.values | self.values
        lines = list(match.lines) if match else output.splitlines()
        typed_lines = [f"$ {line}" if at == 0 else line for at, line in enumerate(text.splitlines())]
        after = command.output_at + len(command.output)
        self.fresh.append((command.first, after, [" " * part.indent + line for line in (*typed_lines, *lines)]))

    def _in_background(self, text: str, shown: tuple[str, ...]) -> str:
        """Start a command that goes on. Return its output when it is as shown, or after some patience."""
        out = self.home / "background"
        self.bash.run(f"rm -f {out}")
        self.bash.run(f"( exec > {out} 2>&1; {text}\n) &")

        def as_shown() -> bool:
            return shown_output.compare(shown, self._read(out)) is not None

        with contextlib.suppress(AssertionError):
            eventually(as_shown, "the output of a command in the background", timeout=PATIENCE / 4)
        return self._read(out)

    def _read(self, out: Path) -> str:
        return self._plain(out.read_text(errors="replace")) if out.exists() else ""

    def _plain(self, output: str) -> str:
        """Return an output with the folders that a reader has."""
        return output.replace(f"{self.place}/", "").replace(str(self.home), "/home/you").replace("\r\n", "\n")

    def refreshed(self) -> str:
        """Return the text of the page with the commands and outputs of this run."""
        lines = self.page.read_text().split("\n")
        for first, after, fresh in reversed(self.fresh):
            lines[first:after] = fresh
        return "\n".join(lines)


@contextlib.contextmanager
def session(page: Path, place: Path, home: Path) -> Iterator[Session]:
    """Open a session in the folder of a server."""
    environment = {
        "HOME": str(home),
        "PLACE": str(place),
        "CHECKOUT": str(ROOT),
        "PATH": f"{place / 'bin'}:{BINARIES}:{os.environ['PATH']}",
        "KUBECACHEDIR": str(place / "cache"),
        "KUBECONFIG": str(home / ".kube" / "config"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "USER": "you",
    }
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text((place / "data" / "admin.kubeconfig").read_text())
    bash = Bash(place, home, environment)
    try:
        yield Session(place, home, page, bash)
    finally:
        bash.close()
