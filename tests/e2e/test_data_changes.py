"""A run stays with the data it was begun on, a mistake leaves nothing in the way, and Ctrl-C while rendering ends."""

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import Command, launcher

CPU = ("--device", "cpu", "--discover.loop.steps=2")


@pytest.mark.slow
def test_other_data_is_refused_when_a_run_is_resumed(xskill: Command) -> None:
    assert xskill("discover", "debug", "--out=run", *CPU).returncode == 0
    changed = xskill("discover", "--resume", "--out=run", "--device=cpu", "--data.held-out=3")
    assert changed.returncode == 1
    assert "data.held_out was 2, now 3" in changed.stderr


@pytest.mark.slow
def test_a_mistake_leaves_nothing_in_the_way_of_the_right_command(xskill: Command) -> None:
    wrong = xskill("discover", "debug", "--out=run", *CPU, "--data.demonstrators", "spere")
    assert wrong.returncode == 2
    assert "did you mean 'sphere'?" in wrong.stderr
    right = xskill("discover", "debug", "--out=run", *CPU)
    assert right.returncode == 0, right.stderr


@pytest.mark.slow
def test_control_c_twice_while_frames_are_rendered_ends_everything(tmp_path: Path) -> None:
    words = [*launcher(1), "discover", "debug", f"--out={tmp_path / 'run'}", *CPU, "--data.demos=puppets:40"]
    words += ["--data.size=64", "--workers=2", f"--data-folder={tmp_path / 'data'}"]
    making = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90
    while not list((tmp_path / "data").rglob("making-*.jsonl")):
        assert making.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(4)  # the workers are at it
    family = psutil.Process(making.pid).children(recursive=True)
    making.send_signal(signal.SIGINT)
    time.sleep(0.3)
    making.send_signal(signal.SIGINT)
    making.communicate(timeout=200)
    assert making.returncode in (130, -signal.SIGINT)  # the second may come while Python is already leaving
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [process for process in alive if "resource_tracker" not in " ".join(process.cmdline())]
