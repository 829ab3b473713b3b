"""`xskill compose` and `xskill eval` as a user runs them, with a model that knows nothing yet."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Command
from tests.evaluate.made import model
from xskill.cli import main
from xskill.data.config import DataConfig
from xskill.data.video import read_video, write_video
from xskill.engine.config import to_json
from xskill.transfer.model import save_model

CPU = ("--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with random weights, said to be trained on made-up demonstrations; and a video."""
    data = to_json(DataConfig(demos="puppets:8", size=16, held_out=2))
    save_model(model(), tmp_path / "model", {"data": data})
    frames = np.random.default_rng(0).integers(256, size=(30, 40, 60, 3), dtype=np.uint8)
    write_video(tmp_path / "prompt.mp4", frames, 30.0)
    return tmp_path


def test_a_prompt_video_becomes_an_episode_with_all_there_is_to_see(xskill: Command, folder: Path) -> None:
    told = ("--asked", "light", "--undo", "slide@30", "--out", "seen", *CPU)
    done = xskill("compose", "--model", "model", "--prompt", "prompt.mp4", *told)
    assert done.returncode == 0, done.stderr
    assert "score 0.00: not all in the order asked for" in done.stdout
    episode = json.loads((folder / "seen/episode.json").read_text())
    assert (episode["asked"], episode["steps"], episode["undone"]) == (["light"], 170, None)  # 100 more to do it again
    assert (episode["completed"], episode["score"], episode["order_free"], episode["success"]) == ([], 0, 0, False)
    assert episode["seconds"] > 0
    assert "slide was not done at step 30, so there was nothing to undo" in done.stdout
    assert len(episode["decisions"]) == 43  # of 4 steps each
    assert all(0 <= decision["progress"] <= 1 for decision in episode["decisions"])
    for name in ("episode.mp4", "timelines.png"):
        assert (folder / "seen" / name).stat().st_size > 1000
    again = xskill("compose", "--model", "model", "--prompt", "prompt.mp4", "--steps", "9", "--out", "again", *CPU)
    assert again.returncode == 0, again.stderr
    assert json.loads((folder / "again/episode.json").read_text())["score"] is None


def test_a_demo_is_a_video_of_somebody_else_and_what_the_robot_makes_of_it(xskill: Command, folder: Path) -> None:
    words = ("demo", "--tasks", "light", "--body", "red-sphere", "--model", "model", *CPU)
    done = xskill(*words)
    assert done.returncode == 0, done.stderr
    assert "asked, by a video of the red-sphere, " in done.stdout
    assert "in the order asked for: 0 of 1" in done.stdout
    episode = json.loads((folder / "demo/episode.json").read_text())
    assert (episode["asked"], episode["setting"], episode["steps"]) == (["light"], "shown by red-sphere", 70)
    page = (folder / "demo/report.html").read_text()
    assert "<td>light</td><td>not done</td>" in page
    assert "data:video/mp4" in page
    assert "data:image/png" in page
    shown, fps = read_video(folder / "demo/prompt.mp4", (16, 16))
    both, _ = read_video(folder / "demo/episode.mp4", (16, 32))
    assert fps == pytest.approx(12.5)
    assert len(shown) > 20
    assert len(both) == 70
    assert np.abs(both[0, :, :16].astype(float) - shown[0]).mean() < 8  # the prompt is on the left
    again = xskill(*words, "--seed", "1")  # another video; the old one is replaced
    assert again.returncode == 0, again.stderr
    assert not np.array_equal(shown[:20], read_video(folder / "demo/prompt.mp4", (16, 16))[0][:20])


@pytest.mark.slow
def test_a_suite_is_scored_kept_and_taken_up_again(xskill: Command, folder: Path) -> None:
    words = ("eval", "perturb", "--model", "model", "--conditions", "0:2", "--out", "scores", "--json", *CPU)
    first = xskill(*words)
    assert first.returncode == 0, first.stderr
    (kept,) = (folder / "scores").glob("*.jsonl")
    lines = kept.read_bytes().splitlines()
    assert len(lines) == 2
    assert json.loads(first.stdout.splitlines()[-1])["XSkill"]["cross x1, undone"]["episodes"] == 2
    about = json.loads((folder / "scores/table.json").read_text())["about"]
    assert about["models"][0]["data"]["demos"] == "puppets:8"
    kept.write_bytes(lines[0] + b"\n" + lines[1][:40])  # killed while the second was written
    again = xskill(*words, "--videos")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-5:] == first.stdout.splitlines()[-5:]
    redone = kept.read_bytes().splitlines()
    assert (len(redone), redone[0]) == (3, lines[0])
    one, other = (json.loads(line) for line in (lines[1], redone[-1]))
    assert one | {"seconds": 0} == other | {"seconds": 0}
    assert len(list((folder / "scores/videos").glob("*/*.mp4"))) == 3

    other = xskill(*words, "--demos", "puppets:16")  # other prompts: nothing of the old is taken for new
    assert other.returncode == 0, other.stderr
    assert len(list((folder / "scores").glob("*.jsonl"))) == 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("compose --model model --prompt none.mp4", "there is no video none.mp4"),
        ("compose --model model --prompt black.mp4", "the prompt shows nothing: its frames are of one colour"),
        ("compose --model model --prompt text.mp4", "text.mp4 is no video that can be read"),
        ("compose --model model --prompt prompt.mp4 --asked lihgt", "no sub-task 'lihgt' (did you mean 'light'?)"),
        ("compose --model model --prompt prompt.mp4 --undo light", "one sub-task and a step, as in light@150"),
        ("compose --model model --prompt prompt.mp4 --undo light@500", "the episode lasts from step 1 to step 379"),
        ("compose --model nothing --prompt prompt.mp4", "nothing has no manifest.json"),
        ("compose --model model --prompt prompt.mp4 --out prompt.mp4/x", "the folder prompt.mp4/x cannot be made"),
        ("demo --model model --tasks lihgt", "no sub-task 'lihgt' (did you mean 'light'?)"),
        ("demo --model model --tasks light light", "the sub-task 'light' is asked for more than once"),
        ("demo --model model --body spere", "there is no body 'spere' (did you mean 'sphere'?)"),
        (
            "demo --model model --out model",
            "model holds a training or a model; remove it, or give --out another folder",
        ),
        ("demo --model model --tasks", "--tasks names no sub-task; choose from bottom-burner"),
        ("demo --model model --seed=-1", "--seed -1 must not be below 0"),
        ("compose --model model --prompt prompt.mp4 --out model", "model holds a training or a model"),
        ("eval pairs --model model --demos puppets:8", "pairs has demonstrations of its own; leave --demos out"),
        ("demo --model nothing", "nothing has no manifest.json"),
        ("eval table2 --model model", "there is no suite 'table2' (did you mean 'table1'?)"),
        ("eval --model model table1", "name the suite first, as in xskill eval table1"),
        ("eval table1 --model model --methods clok", "there is no method 'clok' (did you mean 'clock'?)"),
        ("eval table1 --model model --methods gcd", "model is told skills, not goals that lie ahead; gcd is for those"),
        ("eval orders --model model --methods replay", "nobody has recorded the new orders"),
        ("eval table1 --model model model --conditions 0:1 --out x", "two of the models are the same"),
        ("eval table1 --model model --model model", "name all models after one, as in --model A B"),
        ("eval table1 --model model --out prompt.mp4", "the folder prompt.mp4 cannot be made"),
        ("eval table1 --model model --conditions 5", "it must be first:end, as in 0:32"),
        ("eval table1 --model model --conditions 5:", "it must be first:end, both named and rising"),
        ("eval table1 --model model --demos puppets:0", "puppets:0"),
        ("eval validation --model model", "light, slide unseen; validation is for any other task"),
        ("eval table1 --model nothing", "nothing has no manifest.json"),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, answer: str
) -> None:
    monkeypatch.chdir(folder)
    write_video(folder / "black.mp4", np.zeros((20, 32, 32, 3), np.uint8), 10.0)
    (folder / "text.mp4").write_text("no video")
    assert main([*words.split(), *CPU]) in (1, 2)
    said = capfd.readouterr().err
    assert answer in said
    assert "Traceback" not in said
    assert not (folder / "runs").exists()
