"""`xskill train debug`: both phases, one after the other, and the model they end in."""

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.conftest import Command, launcher, log_of, newest_files
from xskill.cli import main
from xskill.data.config import DataConfig
from xskill.data.video import write_video
from xskill.engine.folder import check_folder
from xskill.errors import CheckpointError
from xskill.kitchen.demos import read_demonstrations
from xskill.transfer.model import load_model

CPU = ("--device", "cpu")


@pytest.mark.slow
def test_both_phases_are_trained_and_end_in_a_model(
    xskill: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = xskill("train", "debug", *CPU)
    assert first.returncode == 0, first.stderr
    run = tmp_path / "runs/debug"
    for phase, loss in (("discover", "prototype_loss"), ("transfer", "policy_loss")):
        assert loss in log_of(run / phase)[0]
    check_folder(run / "model")
    assert sum(path.stat().st_size for path in (run / "model").iterdir()) < 1e6
    assert "million parameters in runs/debug/model" in first.stdout
    page = (run / "report.html").read_text()
    assert all(word in page for word in ("<h2>Discover</h2>", "<h2>Transfer</h2>", "action error", "image/png;base64"))

    again = xskill("train", "--resume", "--out", "runs/debug", *CPU)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("not run again") == 2

    newest = max((run / "transfer/checkpoints").glob("step-*"))
    averaged, trained = (
        safetensors.torch.load_file(newest / name)
        for name in ("pretrained/model.safetensors", "training/weights.safetensors")
    )
    model = load_model(run / "model", torch.device("cpu"))
    assert all(
        torch.equal(model.network.state_dict()[name], weight.half().float()) for name, weight in averaged.items()
    )
    assert any(not torch.equal(weight, trained[name]) for name, weight in averaged.items())  # it acts with the average
    weights = safetensors.torch.load_file(run / "model/transfer.safetensors")
    assert all(tensor.dtype == torch.float16 for tensor in weights.values())
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, weights[name].float())

    monkeypatch.chdir(tmp_path)
    for suite, episodes in (("table1", 5), ("perturb", 1), ("mismatch", 3), ("orders", 1), ("pairs", 2), ("seen", 3)):
        capfd.readouterr()
        assert main(["eval", suite, "--model", "runs/debug/model", "--conditions", "0:1", "--json", *CPU]) == 0
        assert len(json.loads(capfd.readouterr().out.splitlines()[-1])["XSkill"]) == episodes

    shown = np.random.default_rng(0).integers(256, size=(30, 40, 60, 3), dtype=np.uint8)
    write_video(tmp_path / "prompt.mp4", shown, 30.0)
    words = ("--prompt", "prompt.mp4", "--asked", "light", "--steps", "30", *CPU)
    assert main(["compose", "--model", "runs/debug/model", *words]) == 0
    assert json.loads((tmp_path / "out/episode.json").read_text())["steps"] == 30

    other = next(d.order for d in read_demonstrations("puppets:8").good if d.order != DataConfig().unseen)
    few = [f"--{phase}.loop.{field}=4" for phase in ("discover", "transfer") for field in ("steps", "checkpoint-every")]
    assert main(["train", "debug", "--out", "runs/other", "--data.unseen", *other, *few, *CPU]) == 0
    capfd.readouterr()
    assert main(["eval", "validation", "--model", "runs/other/model", "--conditions", "0:1", "--json", *CPU]) == 0
    assert len(json.loads(capfd.readouterr().out.splitlines()[-1])["XSkill"]) == 6

    config = json.loads((run / "model/config.json").read_text())
    config["skill"] += 1  # and, written in another way, of another size
    (run / "model/config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="were written"):
        load_model(run / "model", torch.device("cpu"))
    assert xskill("train", "--resume", "--out", "runs/debug", *CPU).returncode == 0
    check_folder(run / "model")  # mended from the checkpoint


@pytest.mark.slow
def test_a_training_that_goes_on_from_a_model_begins_with_its_weights_and_keeps_its_skills(
    xskill: Command, tmp_path: Path
) -> None:
    few = ("--discover.loop.steps=4", "--discover.loop.checkpoint-every=4", "--transfer.loop.steps=4")
    assert xskill("train", "debug", *few, *CPU).returncode == 0
    words = ("train", "debug", "--base", "runs/debug/model", "--data.demos", "puppets:7", *CPU)
    still = ("--transfer.loop.steps=1", "--transfer.loop.learning-rate=1e-9")
    gone_on = xskill(*words, *still, "--out=on")
    assert gone_on.returncode == 0, gone_on.stderr
    assert not (tmp_path / "on/discover").exists()
    base, on = (load_model(tmp_path / name, torch.device("cpu")) for name in ("runs/debug/model", "on/model"))
    for name, tensor in on.network.state_dict().items():
        assert torch.allclose(tensor, base.network.state_dict()[name], atol=1e-6), name
    assert all(torch.equal(tensor, base.skills.state_dict()[name]) for name, tensor in on.skills.state_dict().items())
    assert (on.body, on.tokens) == (base.body, base.tokens)  # of the demonstrations it saw first
    again = xskill("train", "--resume", "--out=on", *CPU)
    assert "transfer: trained with this config already" in again.stdout, again.stderr
    other = ("--transfer.keep-policy", "--transfer.aligner.kind=transformer", "--transfer.loop.steps=2")
    kept = xskill(*words, *other, "--out=kept")
    assert kept.returncode == 0, kept.stderr
    anew = load_model(tmp_path / "kept/model", torch.device("cpu"))
    assert anew.transfer.aligner.kind == "transformer"
    for name, tensor in anew.network.policy.state_dict().items():
        assert torch.equal(tensor, base.network.policy.state_dict()[name]), name
    for wrong, answer in {
        "--transfer.policy.kernel=5": "runs/debug/model was trained with transfer.policy.kernel 3, now it is 5",
        "--data.level=1": "runs/debug/model was trained with data.level 0, now it is 1",
        "--base=nowhere": "there is no folder nowhere",
        "--base=": "--transfer.keep-policy: nothing is there to be kept; name a model with --base",
        "--out=runs/debug": "--base runs/debug/model is part of the run runs/debug; give --out another folder",
    }.items():
        refused = xskill(*words, "--transfer.keep-policy", "--out=refused", wrong, "--overwrite")
        assert refused.returncode in (1, 2)
        assert answer in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_a_transfer_killed_and_resumed_equals_one_that_never_stopped(xskill: Command, tmp_path: Path) -> None:
    options = ("--transfer.loop.steps=60", "--transfer.loop.checkpoint-every=7", "--discover.loop.steps=10", *CPU)
    options = ("--data.cameras", "side", "wrist", *options)
    assert xskill("train", "debug", "--out=straight", *options).returncode == 0
    words = [*launcher(1), "train", "debug", "--out=killed", *options]
    training = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    log = tmp_path / "killed/transfer/log.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and len(log.read_bytes().splitlines()) > 20):
        assert training.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    training.kill()
    training.wait()
    assert not (tmp_path / "killed/model").exists()
    resumed = xskill("train", "--resume", "--out=killed", *CPU)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on from" in resumed.stdout
    for phase in ("discover", "transfer"):
        assert newest_files(tmp_path / "killed" / phase) == newest_files(tmp_path / "straight" / phase)
        assert log_of(tmp_path / "killed" / phase) == log_of(tmp_path / "straight" / phase)
    one, other = ((tmp_path / name / "model/manifest.json").read_bytes() for name in ("killed", "straight"))
    assert one == other


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    loops = ("--discover.loop.steps=4", "--transfer.loop.steps=4", "--transfer.loop.checkpoint-every=2")
    words = [*launcher(2), "train", "debug", "--out=run", *loops, *CPU]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    assert len(log_of(tmp_path / "run/transfer")) == 4
    assert done.stdout.count("million parameters in run/model") == 1
    check_folder(tmp_path / "run/model")
