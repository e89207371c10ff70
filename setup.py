"""Makes the description that a package index shows: README.md with links that work away from the repository.

The address of the repository is the environment variable REPOSITORY, which the publishing workflow sets.  Without it
the description has no pictures, and links into the repository are plain words.
"""

import os
import re
import runpy
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


def description(readme: str, repository: str | None, version: str) -> str:
    """Returns the README with every link into the repository made absolute, at the tag of this version."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return LINK.sub(absolute, readme)


if __name__ == "__main__":
    setup(
        long_description=description(
            (HERE / "README.md").read_text(encoding="utf-8"),
            os.environ.get("REPOSITORY") or None,
            runpy.run_path(str(HERE / "src" / "idiolect" / "version.py"))["__version__"],
        ),
        long_description_content_type="text/markdown",
    )
