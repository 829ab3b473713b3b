"""What a user meets when a training stops: by their wish, by a full disk, by a loss that is no number."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import Command, launcher, log_of, newest_files
from xskill import pipeline
from xskill.cli import main

LONG = ("--discover.loop.steps=100000", "--discover.loop.checkpoint-every=100000", "--device=cpu")


def started(out: Path, *more: str, processes: int = 1) -> "subprocess.Popen[str]":
    """A training that has taken its first steps."""
    words = [*launcher(processes), "discover", "debug", f"--out={out}", *more]
    training = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not ((log := out / "discover" / "log.jsonl").exists() and log.stat().st_size):
        assert training.poll() is None, training.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return training


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    training = started(tmp_path / "run", *LONG)
    training.send_signal(number)
    out, err = training.communicate(timeout=200)
    assert training.returncode == 130
    assert "finishing this step" in err
    assert f"go on with: xskill discover --resume --out {tmp_path / 'run'} --device cpu" in err
    assert "Traceback" not in out + err
    last = log_of(tmp_path / "run" / "discover")[-1]["step"]
    assert newest_files(tmp_path / "run" / "discover")[""] == f"step-{last:08d}"


@pytest.mark.slow
@pytest.mark.parametrize("told", ["launcher", "one worker"])
def test_a_signal_stops_two_processes_at_the_same_step(tmp_path: Path, told: str) -> None:
    training = started(tmp_path / "run", *LONG, processes=2)
    workers = [child for child in psutil.Process(training.pid).children() if child.environ().get("RANK") == "1"]
    (training if told == "launcher" else workers[0]).send_signal(signal.SIGTERM)
    _, err = training.communicate(timeout=200)
    assert training.returncode != 0  # torchrun has exit codes of its own
    last = log_of(tmp_path / "run" / "discover")[-1]["step"]
    assert f"stopped after step {last} of" in err
    assert newest_files(tmp_path / "run" / "discover")[""] == f"step-{last:08d}"


@pytest.mark.slow
def test_stopped_and_resumed_equals_never_stopped(tmp_path: Path, xskill: Command) -> None:
    loop = ("--discover.loop.steps=600", "--discover.loop.checkpoint-every=200", "--device=cpu")
    training = started(tmp_path / "stopped", *loop)
    training.send_signal(signal.SIGINT)
    training.communicate(timeout=200)
    assert training.returncode == 130
    assert xskill("discover", "--resume", "--out", tmp_path / "stopped", "--device=cpu").returncode == 0
    assert xskill("discover", "debug", "--out", tmp_path / "straight", *loop).returncode == 0
    assert newest_files(tmp_path / "stopped" / "discover") == newest_files(tmp_path / "straight" / "discover")
    assert log_of(tmp_path / "stopped" / "discover") == log_of(tmp_path / "straight" / "discover")


@pytest.mark.slow
def test_two_trainings_cannot_share_a_folder(tmp_path: Path, xskill: Command) -> None:
    training = started(tmp_path / "run", *LONG)
    try:
        second = xskill("discover", "--resume", "--out", tmp_path / "run", "--device=cpu")
        assert second.returncode == 1
        assert f"another process (pid {training.pid}) is working in" in second.stderr
    finally:
        training.send_signal(signal.SIGINT)
        training.communicate(timeout=200)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later", [0, 1])  # seconds: it is importing itself, then torch, or already at work
def test_a_signal_before_the_first_step_is_an_interruption_too(
    tmp_path: Path, number: signal.Signals, later: int
) -> None:
    words = [*launcher(1), "discover", "debug", f"--out={tmp_path / 'run'}", *LONG]
    training = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not handles(training.pid, signal.SIGTERM):  # until then it is Python that starts, and none of ours
        assert training.poll() is None, training.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(later)
    training.send_signal(number)
    out, err = training.communicate(timeout=200)
    assert training.returncode == 130
    assert "xskill: " in err
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_ctrl_c_while_frames_are_labelled_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    few = ("--discover.loop.steps=4", "--discover.loop.checkpoint-every=4", "--transfer.loop.steps=4")
    words = ("train", "debug", *few, f"--out={tmp_path / 'run'}", "--device=cpu")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(pipeline, "labelled", lambda *_: signal.raise_signal(signal.SIGINT))
        assert main(words) == 130
    said = capfd.readouterr().err
    assert f"interrupted at once; go on with: xskill train --resume --out {tmp_path / 'run'} --device cpu" in said
    assert "finishing this step" not in said
    assert main(["train", "--resume", f"--out={tmp_path / 'run'}", "--device=cpu"]) == 0
    assert (tmp_path / "run/model/manifest.json").is_file()


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has something to do when it gets this signal."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path, xskill: Command) -> None:
    failed = xskill(
        "discover", "debug", "--out=run", "--device=cpu", "--discover.loop.clip-norm=0", "--discover.loop.ema-decay=0",
        "--discover.loop.learning-rate=1e7", "--discover.loop.warmup-steps=50", "--discover.loop.checkpoint-every=1",
    )  # fmt: skip
    assert failed.returncode == 1
    assert "not finite at step" in failed.stderr
    assert "batch ids" in failed.stderr
    assert "Traceback" not in failed.stderr
    failure = json.loads((tmp_path / "run/discover/failure.json").read_text())
    assert len(failure["batch_ids"]) == 4
    good = newest_files(tmp_path / "run/discover")[""]
    assert f"the last good checkpoint is run/discover/checkpoints/{good}" in failed.stderr
    assert good == f"step-{failure['step'] - 1:08d}"
    manifest = json.loads((tmp_path / "run/discover/checkpoints" / good / "manifest.json").read_text())
    assert manifest["metrics"]["shared_usage"] is not None


def disk_space(folder: Path) -> int:
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_spares_the_last_checkpoint(tmp_path: Path, xskill: Command) -> None:
    # A file system with room for the first checkpoint but not for the sixth, since all are kept.
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", disk], capture_output=True).returncode
    ):
        pytest.skip(
            "only root can mount the small disk this test fills; tests/engine/test_checkpoint.py injects the error"
        )
    try:
        out = disk / "run"
        options = ("--device=cpu", "--discover.loop.keep-last=100")
        full = xskill("discover", "debug", "--out", out, *options)
        assert full.returncode == 1
        assert "No space left on device" in full.stderr
        assert "the last good checkpoint is" in full.stderr
        assert "Traceback" not in full.stderr
        reached = newest_files(out / "discover")[""]
        assert f"checkpoints/{reached}" in full.stderr
        assert not list(out.rglob(".aside-*"))

        (disk / "filler").write_bytes(bytes(disk_space(disk)))
        stuck = xskill("discover", "--resume", "--out", out, "--device=cpu")
        assert stuck.returncode == 1
        assert "No space left on device; make room" in stuck.stderr
        assert len(stuck.stderr.strip().splitlines()) == 1

        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        assert xskill("discover", "--resume", "--out", out, "--device=cpu").returncode == 0
        assert xskill("discover", "debug", "--out", "roomy", *options).returncode == 0
        assert newest_files(out / "discover") == newest_files(tmp_path / "roomy/discover")
        assert log_of(out / "discover") == log_of(tmp_path / "roomy/discover")
    finally:
        subprocess.run(["umount", disk], check=True)
