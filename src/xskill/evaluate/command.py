"""`xskill eval SUITE`: score trained models, keep every episode's record, print the table."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console

from xskill.compose.plan import SkillPlan, plan_of
from xskill.compose.reading import Reading
from xskill.data.config import DataConfig
from xskill.data.split import drawn
from xskill.data.video import write_video
from xskill.discover.config import DiscoverConfig
from xskill.engine.config import CORES, DATA, Device, did_you_mean, differences, first_end, from_json, to_json, unset
from xskill.engine.distributed import chosen
from xskill.engine.folder import (
    MANIFEST,
    damages,
    fingerprint,
    json_lines,
    make_folder,
    read_manifest,
    to_bytes,
    write_file,
)
from xskill.engine.log import Bars, plain_console
from xskill.engine.seeds import seed_of
from xskill.errors import CheckpointError, ConfigError, DataError
from xskill.evaluate import ANY_TASK
from xskill.evaluate.protocol import PROMPTS, ROBOT, Trial, new_orders, settings, trials
from xskill.evaluate.records import finished, left_of, records_in
from xskill.evaluate.rollouts import (
    Performer,
    Pixels,
    Record,
    Replayed,
    Robots,
    Scripted,
    filmed,
    side_by_side,
    watched,
)
from xskill.evaluate.tables import comparisons, markdown, sentences, summary, where_it_ended
from xskill.kitchen.dataset import split
from xskill.kitchen.demos import Demonstration, Demonstrations
from xskill.kitchen.film import FPS, film_of, shoot_all
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.scripted import NEW_PAIRS, demonstrations, is_name, prompts_of
from xskill.transfer.config import TransferConfig
from xskill.transfer.model import Model, load_model
from xskill.version import exact_version, versions

PROTOCOL = 3
"""Counts up when what is scored changes, so that old records are not taken for new ones."""
METHODS: Mapping[str, tuple[Reading | None, str]] = {
    "xskill": ("aligner", "XSkill"),
    "clock": ("clock", "plan read by the clock"),
    "nearest": ("nearest", "XSkill, NN-compose"),
    "gcd": ("nearest", "GCD policy"),
    "told": ("aligner", "XSkill, told what is done"),
    "replay": (None, "the prompt's own actions replayed"),
    "scripted": (None, "scripted expert, told the order"),
}
"""Name -> how the plan is read, and what it is called in a table."""


@dataclass(frozen=True)
class Evaluate:
    """Score trained models on a suite. Interrupted, it goes on where it was: every finished episode is kept.

    Several models of one method are taken as several trainings (seeds), and the intervals say so.
    """

    model: tuple[Path, ...]
    """Model folders, as a training leaves them in RUN/model."""
    demos: Annotated[str, unset("those the model was trained on")] = ""
    """Demonstrations to prompt with, recorded or scripted."""
    conditions: str = "0:32"
    """Which initial conditions, as first:end."""
    methods: tuple[str, ...] = ("xskill",)
    """What is scored: xskill, clock, nearest, gcd (for models that are told goals), told, replay, scripted."""
    out: Annotated[Path | None, unset("runs/eval/SUITE")] = None
    """Folder for records, tables and videos."""
    records: Path | None = None
    """Folder for records, if they are not only for this table. With those of a model that has been scored, its weights
    are not needed any more."""
    videos: bool = False
    """Also write videos of the first, the worst and a random episode of each method."""
    json: bool = False
    """Print the results as JSON, too."""
    device: Device = "auto"
    """Where the network runs."""
    workers: int = CORES
    """Processes that simulate and render; results do not depend on it."""
    data_folder: Path = DATA
    """Folder for frames and scripted demonstrations."""


def evaluate(suite: str, options: Evaluate) -> None:
    """Do what the options say."""
    console = plain_console()
    out = (options.out or Path("runs/eval") / suite).expanduser()
    if (out / MANIFEST).exists() or (out / "config.json").exists():
        raise ConfigError(f"{out} holds a training or a model; give --out another folder")
    if not options.model or not options.methods:
        raise ConfigError("there is nothing to score; name at least one --model and one of the --methods")
    for method in options.methods:
        if method not in METHODS:
            raise ConfigError(f"there is no method '{method}'{did_you_mean(method, METHODS)}")
    if suite == "pairs" and options.demos:
        raise ConfigError("pairs has demonstrations of its own; leave --demos out")
    rows = {METHODS[method][1]: (method, options.model) for method in options.methods}
    tabulate(suite, rows, options, out, console)


def tabulate(
    suite: str, rows: Mapping[str, tuple[str, Sequence[Path]]], options: Evaluate, out: Path, console: Console
) -> None:
    """Score what is named, row by row, a method and the models of several trainings each; write and print the table."""
    conditions = conditions_of(options.conditions)
    exact_version()  # of what is run, not of what is there when it ends
    benches = {path: _Bench(path.expanduser(), suite, options, console) for _, paths in rows.values() for path in paths}
    for _, paths in rows.values():
        if len({benches[path].key("xskill") for path in paths}) < len(paths):
            raise ConfigError("two of the models are the same; give each training once")
        for path in paths[1:]:
            if apart := differences(benches[paths[0]].trained_as(), benches[path].trained_as()):
                raise ConfigError(
                    f"{paths[0]} and {path} are no two trainings of the same: they differ in {next(iter(apart))}; "
                    "score each by itself, with an --out of its own"
                )
    for method, paths in rows.values():
        for path in paths:
            benches[path].check(method)
    kept = options.records.expanduser() if options.records else out
    make_folder(out)
    make_folder(kept)
    results, records, names = {}, {}, {}
    for name, (method, paths) in rows.items():
        scored: dict[str, list[Record]] = {}
        seeds = [benches[path].seed for path in paths]
        for bench in (benches[path] for path in paths):
            todo = trials(suite, bench.columns, bench.prompts, conditions)
            key = bench.scored_as(method, todo, kept)
            if key in scored:  # a method that needs no model is scored once
                continue
            with Bars(console) as bars:
                path = records_in(kept, method, key)
                made = {"made": exact_version(), "device": bench.device.type}
                scored[key] = finished(todo, partial(bench.performer, method), path, options.workers, name, bars, made)
            names[path.stem] = sorted({f"{line.get('made')} on {line.get('device')}" for line in json_lines(path)})
            if options.videos:
                _write_videos(todo, scored[key], bench, method, out / "videos" / f"{method}-{key}")
        own = seeds if len(set(seeds)) == len(seeds) else range(len(seeds))
        records[name] = dict(zip(own, scored.values(), strict=False))  # less where no model is needed
        results[name] = summary(list(scored.values()))
    table, ahead = f"{markdown(suite, results)}\n\n{where_it_ended(results)}", comparisons(records)
    if ahead:
        told = "Scores, episode by episode, all columns of a condition together, then each"
        table += f"\n\n{told}:\n\n{sentences(ahead)}"
    about: dict[str, Any] = {"versions": versions(), "suite": suite}
    about |= {"conditions": options.conditions, "records": names}
    about |= {"models": [bench.about() for bench in benches.values()]}
    write_file(out / "table.md", (table + "\n").encode())
    write_file(out / "table.json", to_bytes({"about": about, "results": results, "comparisons": ahead}))
    console.print(table)
    console.print(f"records, one line an episode, in {kept}")
    if options.json:
        console.print(json.dumps(results))


def unscored(suite: str, path: Path, methods: Sequence[str], options: Evaluate) -> list[str]:
    """Methods by which a model has not been scored: the folder for records has not every episode."""
    assert options.records is not None
    bench, folder = _Bench(path, suite, options, plain_console(quiet=True)), options.records
    todo = trials(suite, bench.columns, bench.prompts, conditions_of(options.conditions))
    return [m for m in methods if left_of(todo, records_in(folder, m, bench.scored_as(m, todo, folder)))]


class _Bench:
    """A model and all that it is to be shown. Its weights are read when they are needed."""

    def __init__(self, path: Path, suite: str, options: Evaluate, console: Console) -> None:
        self.path, self._suite, self._options, self.device = path, suite, options, chosen(options.device)
        self._manifest = read_manifest(path)
        files = self._manifest["files"].items()  # weights need not be there where all has been scored
        for damage in damages(path, {"files": {name: about for name, about in files if name == "config.json"}}):
            raise CheckpointError(damage)
        if "data" not in self._manifest:
            raise DataError(f"{path} does not say what it was trained on, so nobody knows what it has not seen")
        self.data = from_json(DataConfig, self._manifest["data"], f"{path}: data")
        papers, wanted = self.data.unseen == DataConfig().unseen, suite != "validation"
        if papers != wanted and suite not in ANY_TASK:
            about = "is about the paper's task" if wanted else "is for any other task"
            raise ConfigError(f"{path} was trained with {', '.join(self.data.unseen)} unseen; {suite} {about}")
        if not self.data.demonstrators:
            raise DataError(f"{path} has watched nobody but the robot, so there is nobody to prompt it across bodies")
        self.columns = settings(suite, self.data.demonstrators, self.data.speed)
        self.prompts = self._prompts(console)
        digest = hashlib.sha256()
        for demo in self.prompts:
            digest.update(f"{demo.title} {demo.qpos.tobytes().hex()} {demo.ctrl.tobytes().hex()}".encode())
        self._prompts_key = digest.hexdigest()
        self._model = cache(lambda: load_model(path, self.device))
        self._plan = cache(self._planned)
        self._film = cache(self._filmed)

    def _prompts(self, console: Console) -> list[Demonstration]:
        """The demonstrations to be shown: condition i is shown the i-th, in rotation."""
        options, suite = self._options, self._suite
        if suite == "pairs":
            orders = [NEW_PAIRS[index % len(NEW_PAIRS)] for index in range(PROMPTS)]
            with Bars(console) as bars:
                return prompts_of(orders, options.data_folder.expanduser(), options.workers, bars.advance)
        read = self._demonstrations(options.demos or self.data.demos, self.data)
        for problem in read.problems:
            console.print(f"passed over: {problem}", style="yellow")
        if suite == "orders":
            reads = [read, *(self._demonstrations(data.demos, data) for data in self._learned_from())]
            return new_orders([demo for one in reads for demo in (*one.good, *one.shown)])
        if suite == "seen":
            train = split(read.good, self.data.unseen, self.data.level, self.data.held_out).train
            some = drawn(train, PROMPTS)
            return [demo for demo in read.good if demo.title in some]
        return [demo for demo in read.good if demo.order == self.data.unseen]

    def _learned_from(self) -> list[DataConfig]:
        """The data that a model was trained on, and that what it went on from was."""
        found, about = [], self._manifest
        while about:
            found.append(from_json(DataConfig, about["data"], f"{self.path}: data"))
            about = about.get("base", {})
        return found

    def _demonstrations(self, source: str, data: DataConfig) -> Demonstrations:
        where, workers, named = self._options.data_folder.expanduser(), self._options.workers, self._options.demos
        if named and not Path(source).exists():  # what was recorded may lie elsewhere now; what is made is made again
            parts = [part if is_name(part) or Path(part).exists() else named for part in source.split("+")]
            source = "+".join(dict.fromkeys("+".join(parts).split("+")))
        try:
            return _read(source, data.count, data.seed, data.tasks, data.unseen, where, workers)
        except DataError as error:
            raise DataError(f"{error}; name them with --demos PATH") from None

    @property
    def seed(self) -> int:
        return int(self._manifest.get("seed", 0))

    def trained_as(self) -> dict[str, Any]:
        """All that was decided about its training but the seed."""
        config = json.loads((self.path / "config.json").read_bytes())
        kinds = {"discover": DiscoverConfig, "transfer": TransferConfig}
        told = {name: to_json(from_json(kind, config[name])) for name, kind in kinds.items()}
        banks = "+".join(self._manifest.get("banks", ()))  # named by what is in them, wherever it was read from
        return told | {"data": to_json(replace(self.data, demos=banks))}

    def check(self, method: str) -> None:
        """Raises `ConfigError` for a method that this model, or this suite, has nothing for."""
        transfer = json.loads((self.path / "config.json").read_bytes())["transfer"]
        goals = transfer["policy"].get("ahead", 0) > 0
        if goals and method in ("xskill", "told", "nearest"):
            raise ConfigError(f"{self.path} is told goals that lie ahead; score it with --methods gcd")
        if method == "gcd" and not goals:
            raise ConfigError(f"{self.path} is told skills, not goals that lie ahead; gcd is for those")
        if method == "told" and transfer["aligner"]["kind"] != "tracker":
            raise ConfigError(
                f"{self.path} has a transformer as aligner, which has no place to be told; leave told out"
            )
        if method == "replay" and self._suite == "orders":
            raise ConfigError("nobody has recorded the new orders, so there are no actions to replay")

    def key(self, method: str, device: str = "") -> str:
        """Names what is scored: another when the suite, the weights, the prompts or the kind of device are."""
        weights = fingerprint(self._manifest) if METHODS[method][0] else self.data.size
        named = [PROTOCOL, self._suite, self._prompts_key, weights, device or self.device.type]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:8]

    def scored_as(self, method: str, todo: Sequence[Trial], folder: Path) -> str:
        """The key of its records: where no device was asked for, of any on which all was scored; or of this one."""
        for device in ("cuda", "cpu") if self._options.device == "auto" else ():
            key = self.key(method, device)
            if not left_of(todo, records_in(folder, method, key)):
                return key
        return self.key(method)

    def about(self) -> dict[str, Any]:
        """What to keep with the numbers."""
        manifest = {name: value for name, value in self._manifest.items() if name != "files"}
        told = {"path": str(self.path.resolve()), "fingerprint": fingerprint(self._manifest)}
        return {**told, "prompts": self._prompts_key, **manifest}

    @property
    def model(self) -> Model:
        return self._model()

    def performer(self, method: str) -> Performer:
        reading = METHODS[method][0]
        if method == "scripted":
            return Scripted(self.data.size)
        if reading is None:
            actions = {demo.title: demo.ctrl for demo in self.prompts}
            return Replayed(lambda trial: actions[trial.prompt], self.data.size)
        return Robots(
            self.model,
            lambda trial: self._plan(trial.prompt, trial.setting.body, trial.setting.speed),
            reading,
            told=method == "told",
        )

    def video(self, trial: Trial) -> Pixels:
        """The prompt as it is shown."""
        films = self._film(trial.setting.body, trial.setting.speed)
        return films[trial.prompt]

    def _planned(self, prompt: str, body: str, speed: float) -> SkillPlan:
        return plan_of(self.model, self._film(body, speed)[prompt], FPS)

    def _filmed(self, body: str, speed: float) -> dict[str, Pixels]:
        film, size, options = film_of(body, self.prompts, speed), self.data.size, self._options
        (bank,) = shoot_all(
            [film], options.data_folder.expanduser(), options=RenderOptions(size, size), workers=options.workers
        )
        return bank.videos("side")


@cache
def _read(
    source: str, count: int, seed: int, tasks: tuple[int, ...], unseen: tuple[str, ...], folder: Path, workers: int
) -> Demonstrations:
    """Demonstrations, read once for all models that are shown them."""
    return demonstrations(source, count=count, seed=seed, tasks=tasks, unseen=unseen, folder=folder, workers=workers)


def _write_videos(todo: Sequence[Trial], records: Sequence[Record], bench: _Bench, method: str, folder: Path) -> None:
    """The prompt and what the robot made of it, side by side; an episode happens again exactly as it did."""
    worst = int(np.argmin([record.score for record in records]))
    which = {"first": 0, "worst": worst, "random": seed_of("video", len(records)) % len(records)}
    shutil.rmtree(folder, ignore_errors=True)  # those of other conditions
    folder.mkdir(parents=True)
    for name, index in which.items():
        trial = todo[index]
        _, states = watched(trial, bench.performer(method))
        setting = trial.setting.name.replace(" ", "-").replace(",", "")
        path = folder / f"{name}-{setting}-{trial.condition}-{100 * records[index].score:.0f}.mp4"
        prompt = bench.video(trial)
        write_video(path, side_by_side(prompt, filmed(ROBOT, states, prompt.shape[1])), FPS)


def conditions_of(text: str) -> range:
    """The initial conditions that `--conditions` names. Raises `ConfigError`."""
    first, end = first_end(text, "--conditions", "0:32")
    if first is None or end is None or not 0 <= first < end:
        raise ConfigError(f"--conditions is '{text}'; it must be first:end, both named and rising, as in 0:32")
    return range(first, end)
