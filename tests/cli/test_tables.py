"""Tables that commands print."""

from __future__ import annotations

import io

from rich.console import Console

from idiolect.cli.terminal import print_table


def test_table_is_printed_with_every_cell():
    drawn = io.StringIO()
    print_table(Console(file=drawn, width=80), [["Method", "Global %"], ["MAP", "81.2"], ["FedAvg", "-"]])
    lines = drawn.getvalue().splitlines()
    assert [cell in line for line, cell in zip(lines[1::2], ["Global %", "81.2"], strict=False)] == [
        True,
        True,
    ]
    assert "FedAvg" in drawn.getvalue()
