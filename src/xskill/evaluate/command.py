"""`xskill eval SUITE`: score trained models, keep every episode's record, print the table."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from xskill.compose.plan import SkillPlan, plan_of
from xskill.compose.reading import Reading
from xskill.data.config import DataConfig
from xskill.data.video import write_video
from xskill.engine.config import Device, from_json
from xskill.engine.folder import check_folder, to_bytes, write_file
from xskill.engine.log import Bars
from xskill.engine.seeds import seed_of
from xskill.errors import ConfigError, DataError
from xskill.evaluate.protocol import Trial, settings, trials
from xskill.evaluate.rollouts import Performer, Pixels, Record, Replayed, Robots, roll_out, side_by_side, watched
from xskill.evaluate.tables import markdown, summary
from xskill.kitchen.dataset import split
from xskill.kitchen.demos import Demonstration, read_demonstrations
from xskill.kitchen.film import FPS, film_of, shoot_all
from xskill.kitchen.render import RenderOptions
from xskill.transfer.model import Model, load_model

METHODS: Mapping[str, tuple[Reading | None, str]] = {
    "xskill": ("aligner", "XSkill"),
    "clock": ("clock", "plan read by the clock"),
    "nearest": ("nearest", "XSkill, NN-compose"),
    "replay": (None, "the prompt's own actions replayed"),
}
"""Name -> how the plan is read, and what it is called in a table."""


@dataclass(frozen=True)
class Evaluate:
    """Score trained models on a suite. Interrupted, it goes on where it was: every finished episode is kept.

    Several models of one method are taken as several trainings (seeds), and the intervals say so.
    """

    model: tuple[Path, ...]
    """Model folders, as a training leaves them in RUN/model."""
    demos: str = ""
    """Recorded demonstrations to prompt with (default: those the model was trained on)."""
    conditions: str = "0:32"
    """Which initial conditions, as first:end."""
    methods: tuple[str, ...] = ("xskill",)
    """What is scored: xskill, clock, nearest, replay."""
    out: Path | None = None
    """Folder for records, tables and videos (default: runs/eval/SUITE)."""
    videos: bool = False
    """Also write videos of the first, the worst and a random episode of each method."""
    json: bool = False
    """Print the results as JSON, too."""
    device: Device = "auto"
    """Where the network runs."""
    workers: int = len(os.sched_getaffinity(0))
    """Processes that simulate and render; results do not depend on it."""
    data_folder: Path = Path(os.environ.get("XSKILL_DATA") or "data")
    """Folder for frames."""


def evaluate(suite: str, options: Evaluate) -> None:
    """Do what the options say."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    out = (options.out or Path("runs/eval") / suite).expanduser()
    conditions = _conditions(options.conditions)
    for method in options.methods:
        if method not in METHODS:
            raise ConfigError(f"there is no method '{method}' (choose from {', '.join(METHODS)})")
    benches = [_Bench(path.expanduser(), options) for path in options.model]
    for path, bench in zip(options.model, benches, strict=True):
        if (bench.data.unseen == DataConfig().unseen) == (suite == "validation"):
            raise ConfigError(
                f"{path} was trained with {', '.join(bench.data.unseen)} unseen; "
                + (
                    "validation is for any other task"
                    if suite == "validation"
                    else f"{suite} is about the paper's task"
                )
            )
    results = {}
    for method in options.methods:
        per_model = []
        for bench in benches:
            todo = trials(suite, settings(suite, bench.demonstrator), bench.prompts, conditions)
            path = out / f"{method}-{bench.key}.jsonl"
            with Bars(console) as bars:
                per_model.append(_finished(todo, bench.performer(method), path, options.workers, method, bars))
            if options.videos:
                _write_videos(todo, per_model[-1], bench, method, out / "videos" / f"{method}-{bench.key}")
        results[METHODS[method][1]] = summary(per_model)
    table = markdown(suite, results)
    write_file(out / "table.md", (table + "\n").encode())
    write_file(out / "table.json", to_bytes(results))
    console.print(table)
    console.print(f"records, one line an episode, in {out}")
    if options.json:
        console.print(json.dumps(results))


class _Bench:
    """A model and all that it is to be shown."""

    def __init__(self, path: Path, options: Evaluate) -> None:
        device = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
        self._options, self._device = options, torch.device(device)
        manifest = check_folder(path)
        if "data" not in manifest:
            raise DataError(f"{path} does not say what it was trained on, so nobody knows what it has not seen")
        self.data = from_json(DataConfig, manifest["data"], f"{path}: data")
        self.key = f"{seed_of(json.dumps(manifest['files'], sort_keys=True)):016x}"[:8]
        good = read_demonstrations(options.demos or self.data.demos).good
        names = set(split(good, self.data.unseen, self.data.level, self.data.held_out).prompts)
        self.prompts: list[Demonstration] = [demo for demo in good if demo.title in names]
        self.demonstrator = self.data.demonstrators[0]
        self._model = cache(lambda: load_model(path, self._device))
        self._plan = cache(self._planned)
        self._film = cache(self._filmed)

    @property
    def model(self) -> Model:
        return self._model()

    def performer(self, method: str) -> Performer:
        reading = METHODS[method][0]
        if reading is None:
            actions = {demo.title: demo.ctrl for demo in self.prompts}
            return Replayed(lambda trial: actions[trial.prompt], self.data.size)
        return Robots(
            self.model, lambda trial: self._plan(trial.prompt, trial.setting.body, trial.setting.speed), reading
        )

    def video(self, trial: Trial) -> Pixels:
        """The prompt as it is shown."""
        films = self._film(trial.setting.body, trial.setting.speed)
        return films[trial.prompt]

    def _planned(self, prompt: str, body: str, speed: float) -> SkillPlan:
        return plan_of(self.model, self._film(body, speed)[prompt], FPS)

    def _filmed(self, body: str, speed: float) -> dict[str, Pixels]:
        film = film_of(body, self.prompts, speed)
        height, width = self.model.body.size
        options = self._options
        (bank,) = shoot_all(
            [film], options.data_folder.expanduser(), options=RenderOptions(height, width), workers=options.workers
        )
        frames, episodes = bank.frames("side"), bank.episodes
        spans = zip(episodes.names, episodes.starts, episodes.lengths, strict=True)
        return {name: frames[start : start + length] for name, start, length in spans}


def _finished(
    todo: Sequence[Trial], performer: Performer, path: Path, workers: int, name: str, bars: Bars
) -> list[Record]:
    """The record of every trial, those in `path` read, the others made and added there at once."""
    known = {(record.setting, record.condition): record for record in read_records(path)}
    wanted = [(trial.setting.name, trial.condition) for trial in todo]
    left = [trial for trial, key in zip(todo, wanted, strict=True) if key not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    bars.advance(name, len(todo) - len(left), len(todo))
    with path.open("ab", buffering=0) as file:
        file.write(b"\n" if left and file.tell() else b"")  # ends a line that a kill may have torn
        for record in roll_out(left, performer, workers=workers):
            file.write(json.dumps(asdict(record)).encode() + b"\n")
            known[record.setting, record.condition] = record
            bars.advance(name, 1, len(todo))
    return [known[key] for key in wanted]


def read_records(path: Path) -> list[Record]:
    """The records in a file; a line that a kill has torn, and one that is empty, is passed over."""
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            values: dict[str, Any] = json.loads(line)
            values["asked"], values["completed"] = tuple(values["asked"]), tuple(map(tuple, values["completed"]))
            values["undone"] = tuple(values["undone"]) if values["undone"] else None
            records.append(Record(**values))
        except (ValueError, TypeError, KeyError):
            continue
    return records


def _write_videos(todo: Sequence[Trial], records: Sequence[Record], bench: _Bench, method: str, folder: Path) -> None:
    """The prompt and what the robot made of it, side by side; an episode happens again exactly as it did."""
    worst = int(np.argmin([record.score for record in records]))
    chosen = {"first": 0, "worst": worst, "random": seed_of("video", len(records)) % len(records)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, index in chosen.items():
        trial = todo[index]
        _, frames = watched(trial, bench.performer(method))
        setting = trial.setting.name.replace(" ", "-").replace(",", "")
        path = folder / f"{name}-{setting}-{trial.condition}-{100 * records[index].score:.0f}.mp4"
        write_video(path, side_by_side(bench.video(trial), frames), FPS)


def _conditions(text: str) -> range:
    try:
        first, end = (int(part) for part in text.split(":"))
        if 0 <= first < end:
            return range(first, end)
    except ValueError:
        pass
    raise ConfigError(f"--conditions is '{text}'; it must be first:end, as in 0:32")
