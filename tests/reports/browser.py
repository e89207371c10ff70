"""Chromium without a window, driven over the two pipes of its DevTools protocol with the standard library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from ..child_process import child_process

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
]
PATIENCE = 60.0


class Browser:
    """One browser with one tab; messages are JSON ended by a zero byte, on file descriptors 3 and 4.

    Args:
        until: ends the browser when it is closed.
    """

    def __init__(self, until: ExitStack) -> None:
        to_read, self._to_write = os.pipe()
        self._from_read, from_write = os.pipe()
        self._home = tempfile.mkdtemp(prefix="chromium-")
        os.set_inheritable(to_read, True)
        os.set_inheritable(from_write, True)
        command = " ".join(["exec", str(CHROMIUM), *FLAGS, f"--user-data-dir={self._home}", "about:blank"])
        until.callback(shutil.rmtree, self._home, ignore_errors=True)
        until.callback(os.close, self._to_write)
        words = ["/bin/bash", "-c", f"{command} 3<&{to_read} 4>&{from_write}"]
        pipes, nowhere = (to_read, from_write), subprocess.DEVNULL
        until.enter_context(child_process(words, pass_fds=pipes, stdout=nowhere, stderr=nowhere))
        os.close(to_read)
        os.close(from_write)
        self.events: list[dict[str, Any]] = []
        self._answers: Queue[dict[str, Any]] = Queue()
        self._count = 0
        self._session: str | None = None
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise TimeoutError(f"the browser did not answer {method}") from None
            if answer["id"] == self._count:
                assert "error" not in answer, (method, answer)
                return dict(answer["result"])

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Loads a page afresh and waits until everything is drawn."""
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && document.body.dataset.drawn === 'all'")

    def value(self, script: str) -> Any:
        """What an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.value(script):
            assert time.monotonic() < deadline, f"{script} never came true"
            time.sleep(0.05)

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Scrolls to an element and gives its centre in the window."""
        name = json.dumps(selector)
        x, y = self.value(
            f"(async () => {{ const e = document.querySelector({name});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "for (let i = 0; i < 3; i += 1) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self.middle_of(selector)
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions nobody caught."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """What the page asked for, data inside the page aside."""
        asked = [
            e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:") and url != "about:blank"]

    def _listen(self) -> None:
        waiting = b""
        with os.fdopen(self._from_read, "rb", buffering=0) as pipe:
            while piece := pipe.read(1 << 16):
                *messages, waiting = (waiting + piece).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.put(message)
                    else:
                        self.events.append(message)
