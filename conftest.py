"""What can be collected: the room of deployment needs the extra ``flower``."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["src/idiolect/deploy/*"]
