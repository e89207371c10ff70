"""Hooks of MkDocs: pages that are made while the site is built, and links that lead out of the folder docs.

Documents link to source files and to pages at the top of the repository, so that they can be read there.  On the site
those pages have a place of their own, and each source file that some page links to is a page that shows it.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File
from mkdocs.structure.nav import Link

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
AT_THE_TOP = {  # pages of the repository's top folder, by their place on the site
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
WIDE = ("methods/index.md", "combinations.md")  # pages with wide tables have no columns beside them
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    made = {"decisions/index.md": decisions(), "api/parts.md": parts()}
    made |= {place: (ROOT / name).read_text(encoding="utf-8") for place, name in AT_THE_TOP.items()}
    texts = {
        Path(file.src_uri): Path(file.abs_src_path).read_text("utf-8") for file in files.documentation_pages()
    }
    texts |= {Path(place): text for place, text in made.items()}
    for place, text in texts.items():
        for target in linked_sources(place, text):
            made[f"source/{target}.md"] = source_page(target)
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Lists the chapters of a page in the navigation under the words that people look for, after the page itself."""
    section = next(item for item in nav.items if item.title == "How to")
    links = [Link(title, target) for title, target in config.extra["chapters"].items()]
    for link in links:
        link.parent = section
    section.children[1:1] = links
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    place = Path(page.file.src_uri)
    if place.as_posix() in WIDE:
        page.meta["hide"] = ["navigation", "toc"]
    elif place.parent.name == "methods":  # a card: its place is the table
        markdown = re.sub(r"(?m)^(=+\n)", r"\1\n[All methods](index.md)\n", markdown, count=1)

    def on_the_site(found: re.Match[str]) -> str:
        target = site_place(place, found[2])
        return f"{found[1]}{target}{found[3] or ''}{found[4]}" if target else found[0]

    blocks = iter([found[0] for found in FENCE.finditer(markdown)])
    linked = LINK.sub(on_the_site, FENCE.sub("\0", markdown))
    return re.sub("\0", lambda _: next(blocks), linked)


def site_place(place: Path, target: str) -> str | None:
    """Returns where a link of a page leads on the site, if not where it says."""
    path = repository_path(place, target)
    top = {name: where for where, name in AT_THE_TOP.items()}
    top |= {"README.md": "index.md", "docs/decisions": "decisions/index.md"}
    if path in top:
        return relative(top[path], place)
    if path.startswith("docs/"):
        return relative(path.removeprefix("docs/"), place) if place.as_posix() in AT_THE_TOP else None
    return relative(f"source/{path}.md", place)


def repository_path(place: Path, target: str) -> str:
    """Returns the path from the top of the repository that a link of a page leads to."""
    folder = ROOT if place.as_posix() in AT_THE_TOP else DOCS / place.parent
    return PurePosixPath(os.path.relpath(folder / target, ROOT)).as_posix()


def relative(target: str, place: Path) -> str:
    return PurePosixPath(os.path.relpath(target, place.parent)).as_posix()


def linked_sources(place: Path, text: str) -> list[str]:
    """Returns the files and folders of the repository outside docs that a page links to."""
    top = {*AT_THE_TOP.values(), "README.md"}
    found = {repository_path(place, link[2]) for link in LINK.finditer(FENCE.sub("", text))} - top
    return sorted(path for path in found if not path.startswith(("docs/", "..")) and (ROOT / path).exists())


def source_page(path: str) -> str:
    """Returns a page that shows a file, or what a folder holds."""
    at = ROOT / path
    unsearched = (
        "---\nsearch:\n  exclude: true\n---\n\n"  # else sources come before the pages that explain them
    )
    if at.is_dir():
        names = sorted(each.name for each in at.iterdir() if not each.name.startswith(("_", ".")))
        return f"{unsearched}# {path}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    kind = {".py": "python", ".toml": "toml"}.get(at.suffix, "text")
    return f"{unsearched}# {path}\n\n~~~~~{kind}\n{at.read_text(encoding='utf-8')}~~~~~\n"


def decisions() -> str:
    """Returns the list of all decision records by their headings."""
    lines = ["# Decisions", "", "One page for each choice that a newcomer would question.", ""]
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        number, _, title = heading.partition(" ")
        lines.append(f"- {number.rstrip('.')}: [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def parts() -> str:
    """Returns the page of every part of the package, from its docstring."""
    tree = ast.parse((ROOT / "src" / "idiolect" / "parts" / "__init__.py").read_text(encoding="utf-8"))
    listed = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    names = "\n\n".join(part(name) for name in ast.literal_eval(listed))
    return f"# All parts\n\nOne idea each. `idiolect methods NAME` prints the same, with the defaults.\n\n{names}\n"


def part(name: str) -> str:
    """Returns the place of one part, with what its file says where that is called like it, and nothing else of it."""
    path = f"::: idiolect.parts.{name}"
    own_file = (ROOT / "src" / "idiolect" / "parts" / f"{name}.py").is_file()
    return f"{path}\n    options:\n      members: [{name}]" if own_file else path
