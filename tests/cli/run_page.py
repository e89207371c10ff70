"""Runs the blocks of a page, given on standard input as (language, line, code), up to the first that fails."""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import idiolect


def run_page(page, parts):
    names = {"__name__": "__main__"}
    for language, line, code in parts:
        print(f"--- {page}:{line}", flush=True)
        if language == "python":
            before = set(names)
            exec(compile("\n" * (line - 1) + code, page, "exec"), names)
            for test in [name for name in names.keys() - before if name.startswith("test_")]:
                names[test]()
        elif language == "sql":
            found = idiolect.connect("runs").sql(code).df()
            assert len(found), f"{page}:{line} finds nothing"
        elif language == "toml":
            name = code.splitlines()[0].removeprefix("# ")
            Path(name).write_text(code)
            subprocess.run(["idiolect", "compare", "--config", name], check=True)
        else:
            subprocess.run(["bash", "-e", "-o", "pipefail", "-c", code], check=True)


if __name__ == "__main__":
    assert os.environ.get("STAND_INS") == "read" or "MIRROR" not in os.environ
    sys.path.insert(0, "")  # the folder in which the page is read
    run_page(sys.argv[1], literal_eval(sys.stdin.read()))
