"""Makes the dataset shakespeare-roles from Shakespeare's plays in XML, as J. Bosak marked them up.

    python scripts/make_shakespeare_roles.py --from PLAYS --to DIR

PLAYS is a folder of .xml files or a gzipped tar of them.  DIR/shakespeare_roles.json then holds, for every role of
every play, its speeches in their order; a speech said together belongs to each of its speakers, stage directions to
nobody.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from pathlib import Path

from idiolect.errors import UserError

NAME = "shakespeare_roles.json"


def plays(where: Path) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each XML file, in the order of their names."""
    if where.is_dir():
        yield from ((path.name, path.read_bytes()) for path in sorted(where.glob("*.xml")))
        return
    with tarfile.open(where, "r:gz") as tar:
        for member in sorted(tar, key=lambda member: member.name):
            content = tar.extractfile(member) if member.isfile() and member.name.endswith(".xml") else None
            if content is not None:
                yield member.name, content.read()


def roles_of(files: Iterable[tuple[str, bytes]]) -> dict[str, list[str]]:
    """Returns the speeches of each "play :: role", lines joined by line breaks."""
    roles: dict[str, list[str]] = {}
    for name, content in files:
        try:
            root = ElementTree.fromstring(content)
        except ElementTree.ParseError as problem:
            raise UserError(f"{name} is not whole XML ({problem})") from problem
        title = _plain(root.findtext("TITLE") or name)
        for speech in root.iter("SPEECH"):
            lines = [line for line in map(_spoken, speech.findall("LINE")) if line]
            for speaker in sorted({_plain(found.text or "") for found in speech.findall("SPEAKER")} - {""}):
                if lines:
                    roles.setdefault(f"{title} :: {speaker}", []).append("\n".join(lines))
    if not roles:
        raise UserError("found no speeches; give a folder or a .tar.gz of plays in Bosak's XML")
    return roles


def _spoken(line: ElementTree.Element) -> str:
    """Returns what is said in a line, without the stage directions inside it."""
    return _plain((line.text or "") + "".join(direction.tail or "" for direction in line))


def _plain(text: str) -> str:
    return " ".join(text.split())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from", dest="plays", type=Path, required=True, help="folder or .tar.gz of the plays"
    )
    parser.add_argument("--to", type=Path, required=True, help="the data folder")
    arguments = parser.parse_args()
    try:
        roles = roles_of(plays(arguments.plays))
    except (UserError, OSError, tarfile.TarError) as mistake:
        print(f"make_shakespeare_roles: {mistake}", file=sys.stderr)
        return 2
    arguments.to.mkdir(parents=True, exist_ok=True)
    written = arguments.to / NAME
    content = json.dumps({"users": list(roles), "user_data": roles}, ensure_ascii=False)
    written.write_text(content, encoding="utf-8")
    print(f"{written} ({len(roles)} roles)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
