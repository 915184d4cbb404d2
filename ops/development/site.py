"""The docs site: `make site` stages the pages of docs/ and of the root with a configuration of MkDocs, and builds them.

    python -m kubechronicle.ops.development.site FOLDER

Pages of the root stand beside those of docs/, with links changed to match. The navigation is the tables of
docs/README.md. Links to files that are no pages become plain text. Comments about tests are left out.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from kubechronicle.api.kinds import RELEASE

ROOT: Final = Path(__file__).resolve().parents[2]
OF_ROOT: Final = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
}
"""The names on the site of the pages in the root."""
FILES: Final = ("ops/monitoring/dashboard.json", "ops/monitoring/alerts.yaml")
"""Other files that pages link to; they are copied to files/."""
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_COMMENT: Final = re.compile(r"^ *<!--.*?-->\n", re.S | re.M)
_FENCED: Final = re.compile(r"^( *```.*?^ *```$)", re.S | re.M)
_ROW: Final = re.compile(r"^\| (?P<links>.*?) \|", re.M)


def stage(folder: Path) -> None:
    """Make FOLDER/docs and FOLDER/mkdocs.yml."""
    pages = folder / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    (pages / "files").mkdir()
    for file in FILES:
        shutil.copy(ROOT / file, pages / "files")
    for path in (ROOT / "docs").glob("*.md"):
        (pages / path.name).write_text(staged(path))
    for name, on_site in OF_ROOT.items():
        (pages / on_site).write_text(staged(ROOT / name))
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(configuration(), sort_keys=False))


def staged(path: Path) -> str:
    """Return the text of a page for the site."""
    text = _COMMENT.sub("", path.read_text())
    parts = _FENCED.split(text)
    return "".join(part if number % 2 else _with_links(part, path) for number, part in enumerate(parts))


def _with_links(text: str, page: Path) -> str:
    def changed(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        place, sign, anchor = target.partition("#")
        if "://" in target or not place:
            return link[0]
        found = (page.parent / place).resolve()
        new = _on_site(found)
        return f"{mark}[{words}]({new}{sign}{anchor})" if new else words

    return _LINK.sub(changed, text)


def _on_site(path: Path) -> str:
    """Return the place of a file on the site, "" if it is not there."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return OF_ROOT.get(name) or (f"files/{path.name}" if name in FILES else "")


def navigation() -> list[Any]:
    """Return the sections of docs/README.md with their pages."""
    text = (ROOT / "docs" / "README.md").read_text()
    sections: list[Any] = [{"Overview": ["README.md", OF_ROOT["README.md"]]}]
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        links = [link for row in _ROW.finditer(body) for link in _LINK.findall(row["links"])]
        pages = [{words: target} for _, words, target in links if target.endswith(".md")]
        sections.append({title: pages})
    sections.append({"Project": [name for name in OF_ROOT.values() if name != OF_ROOT["README.md"]]})
    return sections


def configuration() -> dict[str, Any]:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    schemes = [
        {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": _toggle("dark")},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": _toggle("light")},
    ]
    return {
        "site_name": f"kubechronicle {version}",
        "site_description": f"A Kubernetes API server ({RELEASE}) on an append-only Postgres revision log",
        "docs_dir": "docs",
        "site_dir": "html",
        "use_directory_urls": False,  # so that it can be read from files, too
        "theme": {
            "name": "material",
            "font": False,
            "palette": [{**each, "primary": "indigo"} for each in schemes],
            "features": [
                "navigation.sections",
                "navigation.top",
                "content.code.copy",
                "search.highlight",
                "toc.follow",
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "attr_list",
            {"toc": {"permalink": True}},
            "pymdownx.highlight",
            "pymdownx.superfences",
        ],
        "extra": {"generator": False},
        "copyright": f"The API served is that of Kubernetes {RELEASE}.",
        "validation": {"nav": {"omitted_files": "warn"}, "links": {"not_found": "warn", "anchors": "warn"}},
        "nav": navigation(),
    }


def _toggle(other: str) -> dict[str, str]:
    return {"icon": "material/theme-light-dark", "name": f"Switch to {other} mode"}


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
