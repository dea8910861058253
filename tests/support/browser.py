"""Drive headless Chromium through its DevTools protocol: open pages, click, type, read errors, take pictures."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
          "--lang=en", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
          "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank")  # fmt: skip
_WAIT_S = 20.0


class Tab:
    """One tab of the browser; `errors` are the exceptions, console errors and failed loads since the last `open`."""

    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str, ready: str = "document.body?.dataset.loaded") -> None:
        """Open `url` in a page of its own and wait until the expression `ready` is true."""
        self.call("Page.navigate", url="about:blank")  # so that an address that differs after # only is loaded too
        self.errors.clear()
        self.call("Page.navigate", url=url)
        self.wait(ready)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + _WAIT_S
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"{expression} never became true; errors: {self.errors}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """Return the text of an element as a person sees it."""
        found: str = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def count(self, selector: str) -> int:
        """Return how many elements there are."""
        found: int = self.value(f"document.querySelectorAll({json.dumps(selector)}).length")
        return found

    def click(self, selector: str, while_down: str = "") -> None:
        """Click the middle of an element with the mouse, so that one that is covered is not hit.

        `while_down` is JavaScript that runs between the press and the release of the button.
        """
        x, y = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect();"
            f" return [r.x + r.width / 2, r.y + r.height / 2] }})(document.querySelector({json.dumps(selector)}))"
        )
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        if while_down:
            self.value(while_down)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a <select>."""
        self.value(
            f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{bubbles: true}})) }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def press(self, key: str) -> None:
        """Press a key that writes a character, or one by its name, such as Escape."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def write(self, text: str) -> None:
        """Type `text` where the cursor is."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int) -> None:
        """Give the page a size in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, chosen: bool) -> None:
        """Make the system's colours dark or light."""
        wanted = {"name": "prefers-color-scheme", "value": "dark" if chosen else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wanted])

    def picture(self, path: Path) -> None:
        """Write a picture of what is in sight."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(about["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if about["type"] in {"error", "assert"}:
                self.errors.append(json.dumps(about["args"])[:500])
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.errors.append(about["entry"]["text"])


@contextmanager
def open_browser(profile: Path) -> Iterator[Tab]:
    """Start Chromium with a new profile in the folder `profile`, and end it."""
    process = subprocess.Popen(
        ["chromium", *_FLAGS, f"--user-data-dir={profile}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while not port_file.exists() or not port_file.read_text().strip():
            assert process.poll() is None and time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.05)
        port = port_file.read_text().split()[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        with connect(pages[0]["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)
