"""`xskill data`, and the way from phone videos to a model as docs/data.md tells it."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command
from xskill.data.video import write_video
from xskill.kitchen.demos import read_demonstrations
from xskill.kitchen.film import film_of, shoot_all
from xskill.kitchen.render import RenderOptions

SMALL = "--device cpu --discover.loop.steps 4 --transfer.loop.steps 2 --data.size 48"


def steps() -> list[str]:
    """The commands of the first part of docs/data.md."""
    told = (ROOT / "docs/data.md").read_text().split("## Other sources")[0]
    blocks = re.findall(r"^```\n(.*?)^```", told, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def phone_and_robot(xskill: Command, tmp_path: Path) -> Path:
    """What the engineer of docs/data.md has: a folder of videos, and a LeRobot dataset of a robot."""
    made = xskill("data", "make", "kitchen", "--demos", "puppets:6", "--out", "kitchen", "--bodies", "franka",
                  "--size", 48, "--lerobot")  # fmt: skip
    assert made.returncode == 0, made.stderr
    (tmp_path / "kitchen/lerobot/franka").rename(tmp_path / "my-robot")
    demos = read_demonstrations("puppets:6").good
    (bank,) = shoot_all([film_of("hand", demos)], tmp_path / "hand", options=RenderOptions(height=60, width=80))
    (tmp_path / "phone-videos").mkdir()
    for index, frames in enumerate(bank.videos("side").values()):
        write_video(tmp_path / f"phone-videos/IMG_{index}.mov", frames, 30 if index % 2 else 29.97)
    return tmp_path


@pytest.mark.slow
def test_from_phone_videos_to_a_model(xskill: Command, phone_and_robot: Path) -> None:
    commands = steps()
    assert [command.split()[1] for command in commands] == ["data"] * 5 + ["train"]
    for command in commands:
        words = shlex.split(command)[1:]
        if words[0] == "train":
            words = [word.replace("quick", "debug") for word in words] + SMALL.split()
        done = xskill(*words)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (phone_and_robot / "people.png").stat().st_size > 1000
    about = json.loads((phone_and_robot / "runs/debug/model/config.json").read_text())
    assert about["cameras"] == ["side"]
    assert "people: its camera" not in done.stdout
    assert "people: 6 videos" in done.stdout

    mixed_up = ("--data.robot", "./people", "--data.demonstrators", "./my-robot", "--out", "mixed-up")
    refused = xskill("train", "debug", *mixed_up, *SMALL.split())
    assert refused.returncode == 1
    assert "has no actions, so no policy can learn from it: is it the robot's?" in refused.stderr
    assert not (phone_and_robot / "mixed-up/discover").exists()  # said before anything is trained

    import xskill as package
    from xskill.data.video import read_video

    agent = package.load(phone_and_robot / "runs/debug/model", "cpu")
    video, fps = read_video(phone_and_robot / "phone-videos/IMG_0.mov", agent.model.body.size)
    agent.prompt(video, fps)
    decision = agent.act({"state": [0.0] * 9, "side": video[0]})
    assert decision.actions.shape[1] == 9


def test_what_cannot_be_read_makes_an_import_fail_unless_told(xskill: Command, tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "videos").mkdir()
    frames = np.random.default_rng(0).integers(256, size=(12, 32, 32, 3), dtype=np.uint8)
    for name in ("a", "b", "c"):
        write_video(tmp_path / f"videos/{name}.mp4", frames, 10)
    (tmp_path / "videos/b.mp4").write_bytes((tmp_path / "videos/a.mp4").read_bytes()[:500])
    failed = xskill("data", "import", "folder", "videos", "out")
    assert failed.returncode == 1
    assert "b.mp4 is no video that can be read" in failed.stdout
    assert "1 of 3 could not be read" in failed.stderr
    again = xskill("data", "import", "folder", "videos", "out", "--skip-bad")
    assert again.returncode == 1
    assert "out is there already" in again.stderr
    assert xskill("data", "import", "folder", "videos", "out", "--skip-bad", "--overwrite").returncode == 0
    left_out = json.loads((tmp_path / "out/meta/xskill.json").read_text())["left_out"]
    assert len(left_out) == 1
    checked = xskill("data", "check", "out", "--json")
    assert (checked.returncode, json.loads(checked.stdout)) == (
        0, {"ok": True, "episodes": 2, "frames": 24, "problems": []},
    )  # fmt: skip
    video = next((tmp_path / "out").rglob("*.mp4"))
    video.write_bytes(video.read_bytes()[:900])
    checked = xskill("data", "check", "out", "--json")
    assert checked.returncode == 1
    assert not json.loads(checked.stdout)["ok"]


def test_a_verb_or_a_source_that_is_none_is_named(xskill: Command) -> None:
    for words, answer in [
        (("data", "chek", "x"), "there is no verb 'chek' (did you mean 'check'?)"),
        (("data", "import", "foldr", "x", "y"), "there is no source 'foldr' (did you mean 'folder'?)"),
        (("data", "import", "folder", "nothing", "y"), "there is no folder nothing"),
        (("data", "import", "folder", ".", "y", "--crop", "0.5", "0", "0.2", "1"), "crop"),
        (("data", "show", "nothing"), "there is no dataset nothing"),
    ]:
        done = xskill(*words)
        assert done.returncode != 0
        assert answer in done.stderr
    assert "check" in xskill("data").stdout
    assert "folder" in xskill("data", "import", "--help").stdout
