"""The room as a whole."""

from __future__ import annotations

import subprocess
import sys

import idiolect.statistics


def test_every_name_is_there_and_none_needs_torch() -> None:
    code = "import sys, idiolect.statistics as s; [getattr(s, n) for n in s.__all__]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert len(set(idiolect.statistics.__all__)) == len(idiolect.statistics.__all__)
