"""docs/settings.md, made from the tables of flags: ``python -m kubechronicle.ops.settings.page``, or ``make docs``."""

from __future__ import annotations

from kubechronicle.ops import terminal
from kubechronicle.ops.settings.flags import FLAGS
from kubechronicle.ops.settings.flags.foreign import FOREIGN

HEADING = """\
# Settings

Made by `make docs` from the tables in `ops/settings/flags`.

A setting is a flag of `kubechronicle serve` (`--secure-port 6443`), or a key of the YAML file named by `--config`,
without the dashes (`secure-port: 6443`). A flag overrides the file, the file overrides the environment, and the
environment overrides the default. Durations are written as `90s`, `1m30s` or `2h`. The commands on the database
(`migrate`, `verify`, `compact` and others) have `--database-url`, `--data-dir`, `--v` and `--config` too.

After a wrong value, an unknown name or a missing file, the command prints one line about it and exits with code 2.

| setting | default | meaning |
|---|---|---|
"""


OTHERS = """
## Flags of kube-apiserver without a meaning here

Every flag of kube-apiserver v1.37 is known. Those above have its meaning, with its default unless the text says
otherwise. Those below have none here: the server starts and warns, or it refuses to start with a line that says what
stands in the flag's place.

| flag | effect | why |
|---|---|---|
"""


def page() -> str:
    rows = []
    for flag in FLAGS:
        environment = f" Environment: `{flag.environment}`." if flag.environment else ""
        default = f"`{flag.default}`" if flag.default else ""
        text = (flag.help + environment).replace("|", "\\|")
        rows.append(f"| `--{flag.name} {flag.placeholder}` | {default} | {text} |\n")
    others = []
    for other in FOREIGN:
        quiet = ", ".join(f"`{value}`" for value in sorted(other.quiet) if value)
        effect = "refused" if other.refused else "warning"
        others.append(f"| `--{other.name}` | {effect}{f', but {quiet} is accepted' if quiet else ''} | {other.why} |\n")
    return HEADING + "".join(rows) + OTHERS + "".join(others)


if __name__ == "__main__":
    terminal.stdout().lines(page())
