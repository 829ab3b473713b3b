"""What many tests need: the command line as a user runs it, a run to compare, the recorded demonstrations."""

import atexit
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

collect_ignore = [] if importlib.util.find_spec("lerobot") else ["peers"]  # make test-peers

# Networks this small gain nothing from threads, and threads that wait for a busy core cost twenty times as much.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if "XSKILL_DATA" not in os.environ:  # frames are rendered once for all tests, whichever process runs them
    os.environ["XSKILL_DATA"] = tempfile.mkdtemp(prefix="xskill-frames-")
    atexit.register(shutil.rmtree, os.environ["XSKILL_DATA"], ignore_errors=True)

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def xskill(tmp_path: Path) -> Command:
    """Run `xskill ARGS` to its end in an empty folder, as a user would."""

    def command(*args: object, **environment: str) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-m", "xskill", *map(str, args)]
        return subprocess.run(
            words, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=800
        )

    return command


@pytest.fixture
def demos() -> Path:
    """The recorded demonstrations, named by XSKILL_DEMOS; tests that use them carry the mark `demos`."""
    path = os.environ.get("XSKILL_DEMOS")
    if not path:
        pytest.skip("XSKILL_DEMOS is not set: there are no recorded demonstrations to test with")
    return Path(path)


def launcher(processes: int) -> list[str]:
    """The words before an `xskill` command that runs in this many processes."""
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *(several if processes > 1 else []), "-m", "xskill"]


def log_of(phase: Path) -> list[dict[str, Any]]:
    """The records of a phase's log, without the one thing that differs from run to run."""
    records = [json.loads(line) for line in (phase / "log.jsonl").read_text().splitlines()]
    assert all(record.pop("time") > 1.7e9 for record in records)
    return records


def newest_files(phase: Path) -> dict[str, str]:
    """Name -> sha256 of every file in the newest checkpoint: weights, moving average, optimizer, step."""
    newest = max((phase / "checkpoints").glob("step-*"))
    manifest = json.loads((newest / "manifest.json").read_text())
    return {"": newest.name} | {name: entry["sha256"] for name, entry in manifest["files"].items()}
