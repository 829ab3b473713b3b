"""Killed anywhere and resumed, a training ends exactly as if it had never stopped."""

import json
import os
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import launcher, log_of, newest_files

STEPS = 80


def command(out: Path, processes: int, every: int, *more: str) -> list[str]:
    loop = [f"--discover.loop.steps={STEPS}", f"--discover.loop.checkpoint-every={every}", "--device=cpu"]
    return [*launcher(processes), "discover", "debug", f"--out={out}", *loop, *more]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def finish(out: Path, processes: int, every: int, *more: str) -> str:
    done = subprocess.run(
        command(out, processes, every, *more), env=environment(), capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def records(log: Path) -> list[dict[str, float]]:
    """What a log holds so far; its last line may still be on its way."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kill_at(out: Path, step: int, processes: int, every: int, *more: str) -> None:
    """Start a training and `kill -9` all of it as soon as it logs `step`."""
    log = out / "discover" / "log.jsonl"
    began = time.time()
    training = subprocess.Popen(
        command(out, processes, every, *more),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not any(record["step"] >= step and record["time"] > began for record in records(log)):
        assert training.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    parent = psutil.Process(training.pid)
    everyone = [parent, *parent.children(recursive=True)]  # torchrun's workers have sessions of their own
    for process in everyone:
        process.kill()
    training.wait()
    psutil.wait_procs(everyone)
    assert not (out / "discover" / "done.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "every"),
    [(1, 7), (1, 1), (2, 10)],
    ids=["one process", "while saving every step", "two processes"],
)
def test_killed_and_resumed_equals_never_stopped(tmp_path: Path, processes: int, every: int) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    finish(straight, processes, every)

    first, second, third = sorted(random.sample(range(every, STEPS - 20), 3))
    print(f"killed at steps {first}, {second} and {third}")
    kill_at(broken, first, processes, every)
    kill_at(broken, second, processes, every, "--resume")
    kill_at(broken, third, processes, every, "--resume")
    said = finish(broken, processes, every, "--resume")

    assert "going on from" in said
    assert newest_files(broken / "discover") == newest_files(straight / "discover")
    assert log_of(broken / "discover") == log_of(straight / "discover")
    assert not list(broken.rglob(".aside-*"))


@pytest.mark.slow
def test_two_processes_train_on_the_same_batches_as_one(tmp_path: Path) -> None:
    for processes in (1, 2):
        finish(tmp_path / str(processes), processes, 50, "--discover.loop.ema-decay=0")
    one, two = log_of(tmp_path / "1" / "discover"), log_of(tmp_path / "2" / "discover")
    assert len(one) == len(two) == STEPS
    for a, b in zip(one[:30], two[:30], strict=True):  # further on, rounding grows into other decisions of the ReLUs
        assert a == pytest.approx(b, rel=1e-5)
