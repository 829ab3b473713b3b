"""Logs: what is written is there, and after a crash exactly what the checkpoint had reached."""

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from xskill.engine.log import JsonLog, Progression, TensorBoardLog, WandbLog


def test_records_beyond_the_checkpoint_and_torn_lines_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = JsonLog(path, 0)
    for step in range(1, 6):
        log.write(step, {"loss": step / 10, "odd": math.nan})
    log.close()
    whole = path.read_text().splitlines()
    assert json.loads(whole[0]).keys() == {"step", "time", "loss", "odd"}
    assert json.loads(whole[0])["odd"] is None
    path.write_text("\n".join(whole) + '\n{"step": 2, "lo')  # a kill in the middle of a line
    log = JsonLog(path, 3)
    log.write(4, {"loss": 0.0})
    log.close()
    assert path.read_text().splitlines()[:3] == whole[:3]
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_tensorboard_gets_the_scalars_and_forgets_what_a_killed_run_wrote(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for start, steps in [(0, (1, 2, 3)), (1, (2,))]:
        log = TensorBoardLog(tmp_path, start)
        for step in steps:
            log.write(step, {"loss": step + start})
        log.sync()
        log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 3.0)]


@pytest.mark.slow
def test_wandb_gets_the_metrics_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    first = WandbLog(tmp_path, 0)
    first.write(1, {"loss": 0.5})
    first.close()
    identity = (tmp_path / "wandb-run-id").read_text()
    resumed = WandbLog(tmp_path, 1)
    resumed.close()
    assert (tmp_path / "wandb-run-id").read_text() == identity
    files = list((tmp_path / "wandb").glob(f"offline-run-*-{identity}/*.wandb"))
    assert files
    assert any(b"loss" in file.read_bytes() for file in files)


def test_without_a_terminal_progress_is_plain_lines() -> None:
    console = Console(file=io.StringIO(), width=200)
    with Progression("discover", 10, 20, console) as progress:
        for step in range(11, 21):
            progress.update(step, {"loss": 1 / step, "learning_rate": 1e-4})
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2  # the first step and the last: ten seconds have not passed
    assert lines[0].startswith("discover 11/20")
    assert "steps/s" in lines[0]
    assert "s left" in lines[0]
    assert "loss 0.05" in lines[1]
    assert "\x1b" not in console.file.getvalue()


def test_on_a_terminal_progress_is_a_bar_with_rate_time_left_and_loss() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    with Progression("discover", 0, 20, console) as progress:
        progress.update(5, {"loss": 0.125})
    shown = console.file.getvalue()
    assert "━" in shown
    assert "5/20" in shown
    assert "steps/s" in shown
    assert "loss 0.125" in shown
