"""A real browser, told what to do over a pipe: Debian's chromium, without a window."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_PROGRAM = "chromium"
_CONNECT = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'  # where it looks for its pipes
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip


def need_browser() -> None:
    """Skip the test if there is none; fail it in CI, where nothing may be missing."""
    if shutil.which(_PROGRAM):
        return
    reason = f"not installed: {_PROGRAM}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Browser:
    """One page at a time, and all that it did: requests, dialogs and complaints."""

    def __init__(self, profile: Path) -> None:
        reads, self._commands = os.pipe()
        self._answers, writes = os.pipe()
        words = [_PROGRAM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", _CONNECT, "bash", str(reads), str(writes), *words],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._number, self._buffer = 0, b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._commands)
        os.close(self._answers)
        self._process.terminate()
        self._process.wait(timeout=20)

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
            if answer.get("method") == "Page.javascriptDialogOpening":
                raise AssertionError(f"the page opened a dialog: {answer}")
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], 30)[0], "the browser does not answer"
            piece = os.read(self._answers, 1 << 16)
            assert piece, "the browser is gone"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def show(self, path: Path) -> None:
        """Load a page, and wait until it is there."""
        self.events.clear()
        self._ask("Page.navigate", url=path.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """What a script in the page comes to."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def resize(self, width: int, height: int = 900) -> None:
        """Have a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str, media: str = "") -> None:
        """Be in the light or in the dark; on a screen, or on paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", media=media, features=features)

    def told(self, method: str) -> list[dict[str, Any]]:
        """What came of one kind since the page was shown."""
        return [event["params"] for event in self.events if event.get("method") == method]
