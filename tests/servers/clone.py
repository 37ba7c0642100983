"""A copy of the files of `scripts/servers`, so that a test may start and wipe servers without touching the project's own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIABLES = ("NOONDAY_POSTGRES_URL", "NOONDAY_REDIS_URL", "NOONDAY_ETCD_URLS", "NOONDAY_KAFKA_SERVERS")


class Clone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "servers", folder / "servers", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "scripts").mkdir()
        shutil.copy2(ROOT / "scripts" / "servers", folder / "scripts")
        inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        self.env = {**inherited, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHON": sys.executable}

    @property
    def versions(self) -> Path:
        return self.folder / "servers" / "versions.toml"

    def use_port(self, pinned: int, port: int) -> None:
        self.versions.write_text(re.sub(rf"\b{pinned}\b", str(port), self.versions.read_text()))

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "scripts" / "servers"), *words]
        return subprocess.run(
            command, env={**self.env, **env}, capture_output=True, text=True, check=False, timeout=120
        )
