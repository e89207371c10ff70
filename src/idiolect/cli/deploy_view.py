"""What a deployment looks like in a terminal: a line for each site."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from idiolect.cli.terminal import print_table

__all__ = ["SiteTable", "print_status"]

HEADINGS = ("Site", "Now", "Round", "Loss", "Accuracy")


class SiteTable:
    """A table that changes where there is a terminal, and elsewhere a line per round; on standard error."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._live = Live(console=self.console, refresh_per_second=4)
        self._told = 0

    def __enter__(self) -> SiteTable:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def show(self, found: dict[str, Any]) -> None:
        if self.console.is_terminal:
            table = Table(*HEADINGS, title=_title(found), title_justify="left")
            for row in _rows(found):
                table.add_row(*row)
            self._live.update(table)
        elif found["round"] > self._told:
            self._told = found["round"]
            sites = ", ".join(f"{name} loss {loss}" for name, _, _, loss, _ in _rows(found))
            self.say(f"round {found['round']}/{found['rounds']}: {sites}")


def print_status(console: Console, found: dict[str, Any]) -> None:
    print_table(console, [list(HEADINGS), *_rows(found)], title=_title(found), words=2)
    for event in found["events"][-10:]:
        console.print(f"- {event}", highlight=False, markup=False)
    for sentence in (found["message"], f"Record: {found['run']}" if found["run"] else ""):
        if sentence:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _title(found: dict[str, Any]) -> str:
    server = "server runs here" if found["server_runs_here"] else "no server here"
    return f"{found['status']}, round {found['round']} of {found['rounds']}; {server}"


def _rows(found: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, site in found["sites"].items():
        loss, accuracy = site.get("loss"), site.get("accuracy")
        rows.append(
            [
                name,
                str(site.get("now", "runs here" if site["runs_here"] else "-")),
                str(site.get("round", "-")),
                "-" if loss is None else f"{loss:.3f}",
                "-" if accuracy is None else f"{accuracy:.1%}",
            ]
        )
    return rows
