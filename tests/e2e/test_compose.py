"""`xskill compose` and `xskill eval` as a user runs them, with a model that knows nothing yet."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Command
from tests.evaluate.made import model
from xskill.cli import main
from xskill.data.config import DataConfig
from xskill.data.video import read_video, write_video
from xskill.engine.config import to_json
from xskill.kitchen.demos import read_demonstrations
from xskill.transfer.model import save_model

CPU = ("--device", "cpu")


DATA = DataConfig(demos="puppets:8", size=16, held_out=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with random weights, said to be trained on made-up demonstrations; and a video."""
    save_model(model(), tmp_path / "model", {"data": to_json(DATA)})
    frames = np.random.default_rng(0).integers(256, size=(30, 40, 60, 3), dtype=np.uint8)
    write_video(tmp_path / "prompt.mp4", frames, 30.0)
    return tmp_path


def test_a_prompt_video_becomes_an_episode_with_all_there_is_to_see(xskill: Command, folder: Path) -> None:
    (folder / "seen").mkdir()
    for stale in ("episode.json", "report.html", "prompt.mp4"):
        (folder / "seen" / stale).write_text("of another episode")
    told = ("--asked", "light", "--undo", "slide@30", "--out", "seen", *CPU)
    done = xskill("compose", "--model", "model", "--prompt", "prompt.mp4", *told)
    assert done.returncode == 0, done.stderr
    assert "score 0.00: not all in the order asked for" in done.stdout
    assert "done: nothing; time was up after 13.6 s" in done.stdout
    episode = json.loads((folder / "seen/episode.json").read_text())
    assert (episode["asked"], episode["steps"], episode["undone"]) == (["light"], 170, None)  # 100 more to do it again
    assert (episode["completed"], episode["score"], episode["order_free"], episode["success"]) == ([], 0, 0, False)
    assert episode["seconds"] > 0
    assert "slide was not done at step 30, so there was nothing to undo" in done.stdout
    assert len(episode["decisions"]) == 43  # of 4 steps each
    assert "single picture" not in done.stdout
    assert all(0 <= decision["progress"] <= 1 for decision in episode["decisions"])
    assert (episode["model"], episode["reading"]) == ("model", None)
    assert {path.name for path in (folder / "seen").iterdir()} == {"episode.json", "episode.mp4", "timelines.png"}
    for name in ("episode.mp4", "timelines.png"):
        assert (folder / "seen" / name).stat().st_size > 1000
    write_video(folder / "one.mp4", np.random.default_rng(1).integers(256, size=(1, 40, 60, 3), dtype=np.uint8), 30.0)
    again = xskill("compose", "--model", "model", "--prompt", "one.mp4", "--steps", "9", "--out", "again", *CPU)
    assert again.returncode == 0, again.stderr
    assert "the prompt is a single picture" in again.stdout
    assert json.loads((folder / "again/episode.json").read_text())["score"] is None
    film = (folder / "again/episode.mp4").read_bytes()
    itself = xskill("compose", "--model", "model", "--prompt", "again/episode.mp4", "--out", "again", *CPU)
    assert itself.returncode == 2
    assert "again/episode.mp4 is a file that --out again replaces" in itself.stderr
    assert (folder / "again/episode.mp4").read_bytes() == film


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
    fewer = xskill(*words, "--videos", "--conditions", "1:2")  # said twice, the last one holds
    assert fewer.returncode == 0, fewer.stderr
    videos = [path.name for path in (folder / "scores/videos").glob("*/*.mp4")]
    assert len(videos) == 3
    assert all("-1-" in name for name in videos)  # none of condition 0

    other = xskill(*words, "--demos", "puppets:16")  # other prompts: nothing of the old is taken for new
    assert other.returncode == 0, other.stderr
    assert len(list((folder / "scores").glob("*.jsonl"))) == 2


@pytest.mark.slow
def test_validation_is_for_models_that_have_another_task_unseen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    other = next(demo.order for demo in read_demonstrations(DATA.demos).good if demo.order != DATA.unseen)
    save_model(model(), folder / "other", {"data": to_json(replace(DATA, unseen=other))})
    words = ("--model", "other", "--conditions", "0:1", "--out", "scores", "--json", *CPU)
    assert main(["eval", "validation", *words]) == 0
    columns = json.loads(capfd.readouterr().out.splitlines()[-1])["XSkill"]
    crossing = ("cross x1", "cross x1.3", "cross x1.5", "cross x2", "cross x1, undone")
    assert tuple(columns) == ("same x1", *crossing)
    (kept,) = (folder / "scores").glob("*.jsonl")
    assert {tuple(json.loads(line)["asked"]) for line in kept.read_text().splitlines()} == {other}
    assert main(["eval", "table1", *words]) == 2
    assert (
        f"other was trained with {', '.join(other)} unseen; table1 is about the paper's task" in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("compose --model model --prompt none.mp4", "there is no video none.mp4"),
        ("compose --model model --prompt black.mp4", "the prompt shows nothing: its frames are of one colour"),
        ("compose --model model --prompt text.mp4", "text.mp4 is no video that can be read"),
        ("compose --model model --prompt prompt.mp4 --asked lihgt", "no sub-task 'lihgt' (did you mean 'light'?)"),
        ("compose --model model --prompt prompt.mp4 --undo light", "one sub-task and a step, as in light@150"),
        ("compose --model model --prompt prompt.mp4 --undo light@500", "the episode lasts from step 1 to step 379"),
        ("compose --model nothing --prompt prompt.mp4", "there is no folder nothing"),
        ("compose --model model --prompt prompt.mp4 --out prompt.mp4/x", "the folder prompt.mp4/x cannot be made"),
        ("demo --model model --tasks lihgt", "no sub-task 'lihgt' (did you mean 'light'?)"),
        (
            "demo --model model --tasks light,slide",
            "'light,slide' is no sub-task; put spaces between them, as in light slide",
        ),
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
        ("demo --model nothing", "there is no folder nothing"),
        ("eval table2 --model model", "there is no suite 'table2' (did you mean 'table1'?)"),
        ("eval --model model table1", "name the suite first, as in xskill eval table1"),
        ("eval table1 --model model --methods clok", "there is no method 'clok' (did you mean 'clock'?)"),
        ("eval table1 --model model --methods gcd", "model is told skills, not goals that lie ahead; gcd is for those"),
        ("eval orders --model model --methods replay", "nobody has recorded the new orders"),
        ("eval table1 --model model model --conditions 0:1 --out x", "two of the models are the same"),
        ("eval table1 --model model larger", "they differ in discover.num_prototypes; score each by itself"),
        ("report nothing", "there is no folder nothing"),
        ("eval table1 --model model --model model", "name all models after one, as in --model A B"),
        ("eval table1 --model model --out model", "model holds a training or a model; give --out another folder"),
        ("eval table1 --model model --out prompt.mp4", "the folder prompt.mp4 cannot be made"),
        ("eval table1 --model model --conditions 5", "it must be first:end, as in 0:32"),
        ("eval table1 --model model --conditions 5:", "it must be first:end, both named and rising"),
        ("eval table1 --model model --demos puppets:0", "puppets:0"),
        ("eval validation --model model", "light, slide unseen; validation is for any other task"),
        ("eval table1 --model nothing", "there is no folder nothing"),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, answer: str
) -> None:
    monkeypatch.chdir(folder)
    write_video(folder / "black.mp4", np.zeros((20, 32, 32, 3), np.uint8), 10.0)
    (folder / "text.mp4").write_text("no video")
    made = model()
    larger = replace(made, discover=replace(made.discover, num_prototypes=9))
    save_model(larger, folder / "larger", {"data": to_json(DATA), "seed": 1})
    assert main([*words.split(), *CPU * (words.split()[0] != "report")]) in (1, 2)
    said = capfd.readouterr().err
    assert answer in said
    assert "Traceback" not in said
    assert not (folder / "runs").exists()
