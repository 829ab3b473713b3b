"""`xskill train`: the phases of a run, one after the other, each skipped when its result is already there."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import PartialState
from rich.console import Console

from xskill.discover.look import look, told
from xskill.discover.model import load_skills
from xskill.discover.train import DiscoverPhase, Footage
from xskill.engine.config import Device, LoopConfig, Tracker, from_json, to_json
from xskill.engine.distributed import agreed, processes, wait_for_everyone
from xskill.engine.folder import check_folder, without_nan
from xskill.engine.log import Bars, check_trackers
from xskill.engine.loop import Phase, train
from xskill.engine.run import Run, open_run
from xskill.engine.signals import StopOnSignal
from xskill.errors import CheckpointError, ConfigError, Interrupted, RunError
from xskill.presets import Config

if TYPE_CHECKING:
    from xskill.kitchen.dataset import KitchenData


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


def run(preset: str, config: Config, where: Where) -> Mapping[str, Any]:
    """Train every phase in `where.folder`, and return what the last one came to."""
    check_trackers(where.trackers)
    place = processes(where.device)
    if config.discover.videos % place.num_processes:
        count = place.num_processes
        raise ConfigError(f"discover.videos is {config.discover.videos}; {count} processes cannot share them evenly")
    console = Console(quiet=not place.is_main_process, soft_wrap=True, highlight=False, markup=False)
    opened = Run(where.folder, to_json(config))
    with ExitStack() as stack:
        stop = stack.enter_context(StopOnSignal(quiet=not place.is_main_process))
        failure = None
        if place.is_main_process:
            try:
                stack.enter_context(open_run(opened, preset, _understood, where.resume, where.overwrite))
            except (ConfigError, RunError, CheckpointError) as error:
                failure = error
        if agreed(failure is not None, place.device):
            raise failure or RunError("the main process could not open the run folder")
        training = Training(opened, config, where, place, console, stop)
        try:
            with stop.not_yet():
                kitchen = training.data()
            result = training.discover(kitchen)
        except Interrupted as reached:
            raise Interrupted(f"{reached}; go on with: {where.again}") from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted at once; go on with: {where.again}") from None
    place.destroy_process_group()
    return result


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

    def data(self) -> "KitchenData":
        """The banks to learn from, made if need be; other processes wait while the first one makes them."""
        from xskill.kitchen.dataset import prepare

        with Bars(self.console) as bars:
            kitchen = prepare(
                self.config.data, self.where.data, workers=self.where.workers, say=self._warn, progress=bars.advance
            )
        for bank in kitchen.banks:
            episodes = bank.episodes
            self.console.print(f"{episodes.embodiment}: {len(episodes.names)} videos, {episodes.frames} frames")
        return kitchen

    def discover(self, kitchen: "KitchenData") -> Mapping[str, Any]:
        """Phase 1."""
        config, split = self.config, kitchen.split
        footage = [Footage(b, split.of(b, split.train), split.of(b, split.held_out)) for b in kitchen.banks]
        names = json.dumps([split.train, split.held_out]).encode()
        inputs = {bank.episodes.embodiment: bank.path.name for bank in kitchen.banks}
        inputs["split"] = hashlib.sha256(names).hexdigest()
        phase = DiscoverPhase(config.discover, footage, config.seed, self.place.device, self._warn)

        def summary(checkpoint: Path) -> dict[str, float]:
            model = load_skills(checkpoint, config.discover, kitchen.banks[0].size, self.place.device)
            return look(model, phase.held_out, config.discover, self.run.folder / phase.name)

        result = self._trained(phase, config.discover.loop, inputs, summary)
        if self.place.is_main_process:
            for line in told(result["summary"], [videos.name for videos in footage], config.discover):
                self.console.print(line)
        pictures = "measures.json, embedding.png, prototypes.png"
        self.console.print(f"more in {self.run.folder / phase.name}: {pictures}")
        return result

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
        self.console.print(f"{name}: best at step {best.step}; weights in {best.path / 'pretrained'}")
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
