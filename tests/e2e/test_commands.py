"""The commands as a user types them: answers, mistakes, exit codes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command, launcher, newest_files
from xskill import __version__
from xskill.cli import COMMANDS
from xskill.engine.folder import check_folder
from xskill.presets import PRESETS

CPU = ("--device", "cpu")


def one_sentence(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and text.startswith("xskill: ")


def test_help_lists_every_command(xskill: Command) -> None:
    answer = xskill("--help")
    assert answer.returncode == 0
    assert all(re.search(rf"^  {name} ", answer.stdout, re.MULTILINE) for name in COMMANDS)
    assert answer.stdout == xskill().stdout


def test_help_and_parsing_import_nothing_heavy() -> None:
    heavy = {
        "torch",
        "accelerate",
        "numpy",
        "av",
        "mujoco",
        "gymnasium",
        "matplotlib",
        "sklearn",
        "pyarrow",
        "diffusers",
    }
    for args in (["--help"], ["train", "kitchen", "--help"], ["train", "nonsense"]):
        code = f"import sys; from xskill.cli import main; main({args}); print('heavy:', {heavy} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "heavy: set()" in done.stdout, done


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(xskill: Command, command: str) -> None:
    answer = xskill(command, "--help")
    assert answer.returncode == 0
    assert "usage" in answer.stdout


def test_train_help_shows_presets_and_their_values(xskill: Command) -> None:
    presets = xskill("train", "--help").stdout
    assert all(name in presets and about.split(",")[0].split(";")[0] in presets for name, (about, _) in PRESETS.items())
    options = xskill("train", "debug", "--help").stdout
    assert "--discover.loop.steps" in options
    assert "(default: 60)" in options
    assert "(default: runs/PRESET)" in options


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        (["trian"], "there is no command 'trian' (did you mean 'train'?)"),
        (["train", "kichen"], "there is no preset 'kichen' (did you mean 'kitchen'?)"),
        (["train", "debug", "--discover.videos", "0"], "videos is 0; it must be at least 1"),
        (["train", "--resume"], "--resume without a preset needs --out FOLDER, the run to continue"),
        (["train", "--config", "nowhere.json"], "there is no config file nowhere.json"),
        (["train", "debug", "--config=x"], "the preset 'debug' and --config x exclude each other; give one of them"),
        (["train", "debug", "--discover.loop.clip-norm", "inf"], "clip_norm is inf; it must be a finite number"),
        (
            ["train", "debug", "--resume", "--overwrite", *CPU],
            "--resume and --overwrite exclude each other: continue the run, or replace it",
        ),
        (
            ["train", "debug", "--device", "cuda"],
            "device is 'cuda', but torch sees no CUDA device here; use --device cpu or auto",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_sentence_with_exit_code_2(
    xskill: Command, tmp_path: Path, args: list[str], answer: str
) -> None:
    done = xskill(*args, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr.strip() == f"xskill: {answer}"
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_an_unknown_option_is_answered_with_the_nearest(xskill: Command) -> None:
    for option, answer in {
        "--discover.loop.step": "there is no option --discover.loop.step (did you mean --discover.loop.steps?)",
        "--transfer.mask_paddin=0": "there is no option --transfer.mask-paddin (did you mean --transfer.mask-padding?)",
        "--sing": "there is no option --sing (`xskill train PRESET --help` lists them)",
    }.items():
        done = xskill("train", "debug", option, "3")
        assert done.returncode == 2
        assert done.stderr.strip() == f"xskill: {answer}"
    assert xskill("train", "debug", "--discover.no-alternat").returncode == 2  # one that has no default to turn round


def test_a_traceback_only_with_debug(xskill: Command, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    plain = xskill("train", "debug", *CPU)
    assert plain.returncode == 1
    assert one_sentence(plain.stderr)
    verbose = xskill("train", "debug", *CPU, "--debug")
    assert verbose.returncode == 1
    assert "Traceback" in verbose.stderr


@pytest.mark.slow
def test_a_run_is_made_kept_loaded_again_and_replaced_only_when_told(xskill: Command, tmp_path: Path) -> None:
    first = xskill("discover", "debug", "--out", "a", *CPU, "--discover.loop.steps", 20, "--seed", 5)
    assert first.returncode == 0, first.stderr
    saved = json.loads((tmp_path / "a/config.json").read_text())
    assert (saved["preset"], saved["config"]["seed"], saved["config"]["discover"]["loop"]["steps"]) == ("debug", 5, 20)

    again = xskill("discover", "debug", "--out", "a", *CPU)
    assert again.returncode == 1
    assert one_sentence(again.stderr)
    assert "--resume" in again.stderr
    assert "--overwrite" in again.stderr

    same = xskill("discover", "--config", "a/config.json", "--out", "b", *CPU)
    assert same.returncode == 0, same.stderr
    assert newest_files(tmp_path / "a/discover") == newest_files(tmp_path / "b/discover")

    changed = xskill("discover", "--config", "a/config.json", "--out", "c", *CPU, "--seed", 6)
    assert changed.returncode == 0, changed.stderr
    assert newest_files(tmp_path / "a/discover") != newest_files(tmp_path / "c/discover")

    resumed = xskill("discover", "--resume", "--out", "a", *CPU)
    assert resumed.returncode == 0
    assert "not run again" in resumed.stdout

    refused = xskill("discover", "--resume", "--out", "a", *CPU, "--discover.loop.steps", 30)
    assert refused.returncode == 1
    assert "discover.loop.steps was 20, now 30" in refused.stderr

    replaced = xskill("discover", "debug", "--overwrite", "--out", "a", *CPU, "--discover.loop.steps", 10)
    assert replaced.returncode == 0, replaced.stderr
    assert newest_files(tmp_path / "a/discover")[""] == "step-00000010"


def test_info_tells_what_is_here_and_what_is_missing(xskill: Command) -> None:
    facts = json.loads(xskill("info", "--json").stdout)
    assert facts["python"] == sys.version.split()[0]
    assert facts["packages"]["torch"].startswith("2.")
    assert facts["cpu_cores"] >= 1
    assert facts["rendering"]["backend"] in ("egl", "osmesa", "glfw"), facts["rendering"]
    assert facts["extras"]["tensorboard"]["missing"] == []
    text = xskill("info").stdout
    for name, extra in facts["extras"].items():
        assert extra["purpose"] in text
        assert not extra["missing"] or f"pip install -e '.[{name}]'" in text


def test_info_says_why_nothing_can_be_rendered(xskill: Command) -> None:
    facts = json.loads(xskill("info", "--json", MUJOCO_GL="nonsense").stdout)
    assert facts["rendering"]["backend"] is None
    assert "nonsense" in facts["rendering"]["renderer"]


@pytest.mark.slow
def test_what_bodies_share_is_found_and_told_again(xskill: Command, tmp_path: Path) -> None:
    words = ("discover", "quick", "--data.demos", "puppets:24", "--data.size", "48", "--data.held-out", "4")
    first = xskill(*words, "--discover.loop.steps", "500", *CPU, OMP_NUM_THREADS="")
    assert first.returncode == 0, first.stderr
    share = re.search(r"same moment found within 0.5 s for ([\d.]+)% of clips", first.stdout)
    assert share
    assert float(share[1]) > 20  # chance is about 6
    again = xskill("discover", "--resume", "--out", "runs/quick", *CPU)
    assert again.returncode == 0
    assert "not run again" in again.stdout
    assert share[0] in again.stdout
    assert (tmp_path / "runs/quick/discover/log.jsonl").exists()


def test_the_version_is_the_packages(xskill: Command) -> None:
    assert xskill("--version").stdout.strip() == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_a_run_folder_may_have_any_name(xskill: Command, tmp_path: Path) -> None:
    for name in ("quick", "[red]x[/y]", "two words"):
        assert xskill("discover", "debug", "--out", name, *CPU, "--discover.loop.steps", 2).returncode == 0
        again = xskill("discover", "--resume", "--out", name, *CPU)
        assert again.returncode == 0, again.stderr
        assert f"weights in {name}/discover" in again.stdout
    home = xskill("discover", "debug", "--out=~/run", *CPU, "--discover.loop.steps", 2, HOME=str(tmp_path))
    assert home.returncode == 0
    assert (tmp_path / "run/config.json").exists()


@pytest.mark.slow
def test_a_finished_phase_is_only_believed_while_its_weights_are_whole(xskill: Command, tmp_path: Path) -> None:
    def best() -> Path:
        done = json.loads((tmp_path / "run/discover/done.json").read_text())
        return tmp_path / "run" / done["result"]["checkpoint"]

    assert xskill("discover", "debug", "--out=run", *CPU, "--discover.loop.steps=20").returncode == 0
    weights = best() / "pretrained/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    mended = xskill("discover", "--resume", "--out=run", *CPU)
    assert mended.returncode == 0, mended.stderr
    assert "does not match its sha256" in mended.stdout
    assert "going on from" in mended.stdout
    check_folder(best())


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_evenly_leaves_no_folder_behind(tmp_path: Path) -> None:
    words = [*launcher(2), "discover", "debug", f"--out={tmp_path / 'run'}", *CPU, "--discover.videos=7"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=800)
    assert done.returncode != 0
    assert "discover.videos is 7; 2 processes cannot share them evenly" in done.stderr
    assert not (tmp_path / "run").exists()
