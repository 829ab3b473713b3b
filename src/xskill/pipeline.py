"""`xskill train`: the phases of a run, one after the other, each skipped when its result is already there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from rich.console import Console

from xskill.data.frames import FrameBank, FrameStore, stores
from xskill.data.split import TrainingData, to_watch
from xskill.discover.encoder import SkillModel
from xskill.discover.look import look, told
from xskill.discover.train import DiscoverPhase, Footage
from xskill.engine.checkpoint import load_pretrained
from xskill.engine.config import Device, LoopConfig, Tracker, from_json, to_json
from xskill.engine.distributed import agreed, processes, wait_for_everyone
from xskill.engine.folder import check_folder, whole, without_nan
from xskill.engine.log import Bars, check_trackers, plain_console
from xskill.engine.loop import Phase, train
from xskill.engine.run import Run, open_run
from xskill.engine.signals import StopOnSignal
from xskill.errors import CheckpointError, ConfigError, DataError, Interrupted, RunError, XSkillError
from xskill.presets import PRESETS, Config
from xskill.transfer.base import Base, load_base
from xskill.transfer.counterpart import Shown
from xskill.transfer.label import labelled
from xskill.transfer.model import Model, save_model
from xskill.transfer.train import TransferPhase
from xskill.version import exact_version, versions


@dataclass(frozen=True)
class Where:
    """Where and how a run is trained: nothing here changes what is learned."""

    folder: Path
    again: str
    """The command that continues it, told to a user who interrupts."""
    data: Path
    """Folder for frame banks, shared by all runs."""
    workers: int
    """Processes that render."""
    resume: bool = False
    overwrite: bool = False
    device: Device = "auto"
    trackers: Sequence[Tracker] = ()


def run(preset: str, config: Config, where: Where, *, only_discover: bool = False) -> None:
    """Train the phases in `where.folder`, one after the other."""
    check_trackers(where.trackers)
    exact_version()  # of what is run, not of what is there when it ends
    place = processes(where.device)
    shared = {"discover.videos": config.discover.videos, "transfer.batch_size": config.transfer.batch_size}
    for name, size in shared.items():
        if size % place.num_processes:
            raise ConfigError(f"{name} is {size}; {place.num_processes} processes cannot share them evenly")
    console = plain_console(quiet=not place.is_main_process)
    base = None
    for kept in ("policy", "eyes"):
        if getattr(config.transfer, f"keep_{kept}") and not config.base:
            raise ConfigError(f"--transfer.keep-{kept}: nothing is there to be kept; name a model with --base")
    if config.base:
        if only_discover:
            raise ConfigError(f"discovery does not go on from a model; leave --base {config.base} out")
        if where.folder.resolve() in Path(config.base).expanduser().resolve().parents:
            raise ConfigError(f"--base {config.base} is part of the run {where.folder}; give --out another folder")
        base = load_base(config.base, config.data, place.device)
        if config.discover not in (PRESETS[preset][1].discover, base.model.discover):
            raise ConfigError(f"skills are those of {config.base}; leave options of discover out")
        fitted = base.fitted(config.transfer, config.base)
        config = replace(config, discover=base.model.discover, transfer=fitted)
    opened = Run(where.folder, to_json(config))
    with ExitStack() as stack:
        stop = stack.enter_context(StopOnSignal(quiet=not place.is_main_process))
        opening = open_run(opened, preset, _understood, where.resume, where.overwrite)
        _first_alone(place, lambda: stack.enter_context(opening))
        training = Training(opened, config, where, place, console, stop, base)
        try:
            with stop.not_yet():
                data = training.data(only_discover=only_discover)
            skills = training.known_skills(data) if base else training.discover(data)
            if only_discover:
                console.print(f"go on to transfer with: xskill train --resume --out {where.folder}")
            else:
                training.transfer(data, *skills)
        except Interrupted as reached:
            raise Interrupted(f"{reached}; go on with: {where.again}") from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted at once; go on with: {where.again}") from None
    place.destroy_process_group()


def _first_alone(place: PartialState, work: Callable[[], object]) -> None:
    """Let the first process do something for all; where it fails, all of them stop."""
    failure = None
    if place.is_main_process:
        try:
            work()
        except XSkillError as error:
            failure = error
    if agreed(failure is not None, place.device):
        raise failure or RunError("the first process could not go on")


def _understood(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """A saved config as this version reads it: fields that are new since have their defaults."""
    return to_json(from_json(Config, saved))


@dataclass(frozen=True)
class Training:
    """One run under way in one process."""

    run: Run
    config: Config
    where: Where
    place: PartialState
    console: Console
    stop: StopOnSignal
    base: Base | None = None
    """The model it goes on from, if any."""

    def data(self, *, only_discover: bool) -> TrainingData:
        """The banks to learn from, made if need be; other processes wait while the first one makes them."""
        if self.config.data.of_datasets:
            from xskill.data.decode import prepare
        else:
            from xskill.kitchen.dataset import prepare
        with Bars(self.console) as bars:
            data = prepare(
                self.config.data, self.where.data, workers=self.where.workers, say=self._warn, progress=bars.advance
            )
        if not only_discover and data.banks[0].episodes.actions is None:
            raise DataError(f"{data.banks[0].path} has no actions, so no policy can learn from it: is it the robot's?")
        for bank in data.banks:
            episodes = bank.episodes
            self.console.print(f"{episodes.embodiment}: {len(episodes.names)} videos, {episodes.frames} frames")
        return data

    def discover(self, data: TrainingData) -> tuple[SkillModel, list[FrameStore]]:
        """Phase 1: the skill model, and the frames of every body where they are needed next."""
        config, split = self.config.discover, data.split
        footage = [Footage(b, to_watch(split, b), split.of(b, split.held_out)) for b in data.banks]
        inputs = {bank.episodes.embodiment: bank.path.name for bank in data.banks} | {"split": split.key}
        phase = DiscoverPhase(config, footage, self.config.seed, self.place.device, self._warn)

        def loaded(checkpoint: Path) -> SkillModel:
            model = SkillModel(config, data.banks[0].size)
            load_pretrained(checkpoint, model)
            return model.to(self.place.device).eval()

        folder = self.run.folder / phase.name

        def summary(checkpoint: Path) -> dict[str, float]:
            return look(loaded(checkpoint), phase.held_out, config, folder)

        result = self._trained(phase, config.loop, inputs, summary)
        if self.place.is_main_process:
            for line in told(result["summary"], [videos.name for videos in footage], config):
                self.console.print(line)
            self.console.print(f"more in {folder}: measures.json, embedding.png, prototypes.png")
        return loaded(self.run.folder / result["checkpoint"]), phase.frames

    def known_skills(self, data: TrainingData) -> tuple[SkillModel, list[FrameStore]]:
        """What `discover` would come to, of the model that is gone on from."""
        assert self.base is not None
        told = "not discovered again; it may have learned from what is held out here"
        self.console.print(f"skills as {self.config.base} has them, {told}")
        if (rate := data.banks[0].episodes.fps) != self.base.model.fps:
            raise DataError(
                f"the robot's videos have {rate:g} frames a second, those of the base {self.base.model.fps:g}"
            )
        return self.base.model.skills, stores(self._shown(data), self.place.device)

    def _shown(self, data: TrainingData) -> Sequence[FrameBank]:
        """The videos that transfer knows: the robot's, and those of demonstrators, of whom goals tell nothing."""
        return data.banks[:1] if self.config.transfer.policy.told == "goal" else data.banks

    def transfer(self, data: TrainingData, skills: SkillModel, frames: Sequence[FrameStore]) -> None:
        """Phase 2, from the robot's episodes; and the model folder, with all that was learned."""
        config, split, robot = self.config.transfer, data.split, data.banks[0]
        watched, keys = [], []
        if robot.episodes.begins.any() and not config.cross:
            self._warn(
                "setbacks are told by their own videos, which no prompt is like; give transfer.cross more than 0"
            )
        with self.stop.not_yet():  # without a GPU this takes minutes
            for index, (bank, store) in enumerate(zip(self._shown(data), frames, strict=False)):
                path = self.run.folder / TransferPhase.name / "labels" / f"{index}.safetensors"
                found, key = labelled(skills, bank, store, self.config.discover, path)
                train = split.of(bank, split.train)
                watched.append(Shown(found, bank.episodes.starts[train], bank.episodes.lengths[train]))
                keys += [key] if config.cross or not index else []  # what is only measured on decides nothing
            train, held_out = split.of(robot, split.train), split.of(robot, split.held_out)
            device, first = self.place.device, robot.cameras[0]
            cameras = {camera: frames[0] if camera == first else robot.on(device, camera) for camera in robot.cameras}
            phase = TransferPhase(
                config, robot, watched[0].skills, train, held_out, self.config.seed, device, cameras, watched[1:],
                self.base.model.body if self.base else None,
            )  # fmt: skip
        inputs = {"labels": " ".join(keys), "split": split.key}
        if self.base:
            phase.network.go_on_from(self.base.model.network)
            inputs["base"] = self.base.about["key"]
            if outside := phase.out_of_reach():
                self._warn(f"{outside:.1%} of the robot's actions are beyond those of {self.config.base}, and cut off")
        folder = self.run.folder / "model"

        def export(best: Path) -> dict[str, Any]:
            load_pretrained(best, phase.network)
            sizes = phase.tokens, phase.pace, robot.episodes.fps
            model = Model(self.config.discover, config, phase.body, *sizes, skills, phase.network.eval())
            made_from = {"banks": [bank.path.name for bank in data.banks], "data": to_json(self.config.data)}
            made_from |= {"versions": versions(), "frames": [bank.source.get("render") for bank in data.banks]}
            made_from |= {"base": self.base.about} if self.base else {}
            save_model(model, folder, {"seed": self.config.seed, **made_from})
            return {"parameters": sum(p.numel() for part in (skills, phase.network) for p in part.parameters())}

        result = self._trained(phase, config.loop, inputs, export)
        if self.place.is_main_process and not whole(folder):
            export(self.run.folder / result["checkpoint"])
        if self.place.is_main_process:
            error, count = result["metrics"]["action_error"], result["summary"]["parameters"]
            self.console.print(f"transfer: held-out actions within {error:.3f} of their range, on average")
            self.console.print(f"model of {count / 1e6:.1f} million parameters in {folder}")

    def _trained(
        self, phase: Phase, loop: LoopConfig, inputs: Mapping[str, str], summary: Callable[[Path], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Train a phase, unless it was trained with the same config on the same inputs; `summary` is kept with it."""
        name = phase.name
        result = self._finished(name, inputs)
        if agreed(result is not None, self.place.device):
            if result is None:
                raise RunError(f"not every process sees the same files in {self.run.folder}; put it on a shared disk")
            weights = self.run.folder / result["checkpoint"] / "pretrained"
            self.console.print(f"{name}: trained with this config already, not run again; weights in {weights}")
            return result
        _first_alone(self.place, lambda: self.run.begin(name, inputs))
        best = train(
            phase, loop,
            seed=self.config.seed, folder=self.run.folder / name, device=self.where.device,
            trackers=tuple(self.where.trackers), stop=self.stop.asked, console=self.console,
        )  # fmt: skip
        path = str(best.path.relative_to(self.run.folder))
        result = {"step": best.step, "metrics": best.metrics, "checkpoint": path, "summary": {}}
        if self.place.is_main_process:
            result["summary"] = without_nan(summary(best.path))
            self.run.finish(name, inputs=inputs, result=result)
        wait_for_everyone()
        self.console.print(f"{name}: the weights of step {best.step} are kept, in {best.path / 'pretrained'}")
        return result

    def _finished(self, phase: str, inputs: Mapping[str, str]) -> Mapping[str, Any] | None:
        """What a phase has come to, if it is complete and its weights are as they were written."""
        result = self.run.result(phase, inputs)
        if result is not None:
            try:
                check_folder(self.run.folder / result["checkpoint"])
            except CheckpointError as error:
                self._warn(f"{phase}: complete, but {error}")
                return None
        return result

    def _warn(self, text: str) -> None:
        self.console.print(text, style="yellow")
