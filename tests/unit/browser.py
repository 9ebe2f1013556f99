"""A headless Chromium for tests, driven by the DevTools protocol over two pipes: nothing but the browser is needed."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")


class Browser:
    """One page. Use it as a context manager."""

    def __init__(self, folder, size=(1100, 800)):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [
            PROGRAM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
            f"--user-data-dir={folder}",
            f"--window-size={size[0]},{size[1]}",
            "about:blank",
        ]

        def place():  # where Chromium expects them
            high = [os.dup(to_read), os.dup(to_write)]
            while min(high) < 5:
                high = [os.dup(fd) for fd in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=place, close_fds=False
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers, self._buffer, self.problems = itertools.count(1), b"", []
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method, **parameters):
        """Return the result of a method of the protocol, for the page."""
        return self._call(method, self._session, **parameters)

    def _call(self, method, session=None, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._to, content) :]
        while True:
            answer = self._hear()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _hear(self):
        end = time.monotonic() + 120
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 2**16)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(message["params"]["exceptionDetails"])
        elif message.get("method") == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(("file:", "blob:", "about:", "data:")):
                self.problems.append(url)
        return message

    def run(self, script):
        """Return the JSON-able value of an expression, or of the promise that it is. Raises AssertionError if it
        throws."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, path):
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def wait(self, condition, timeout_s=60):
        """Wait until an expression is true."""
        end = time.monotonic() + timeout_s
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"{condition}: {self.problems}"
            time.sleep(0.02)

    def look(self, path, width=1100, height=800, dark=False):
        """Write a picture of the page as a PNG file."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        time.sleep(0.3)
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))
