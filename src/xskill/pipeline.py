"""`xskill train`: the phases of a run, one after the other, each skipped when its result is already there."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from xskill.engine.config import Device, Tracker, from_json, to_json
from xskill.engine.distributed import agreed, processes
from xskill.engine.example import ExamplePhase
from xskill.engine.folder import check_folder
from xskill.engine.log import check_trackers
from xskill.engine.loop import train
from xskill.engine.run import Run, open_run
from xskill.engine.signals import StopOnSignal
from xskill.errors import CheckpointError, ConfigError, Interrupted, RunError
from xskill.presets import Config


@dataclass(frozen=True)
class Where:
    """Where and how a run is trained: nothing here changes what is learned."""

    folder: Path
    again: str
    """The command that continues it, told to a user who interrupts."""
    resume: bool = False
    overwrite: bool = False
    device: Device = "auto"
    trackers: Sequence[Tracker] = ()


def run(preset: str, config: Config, where: Where) -> None:
    """Train every phase in `where.folder`."""
    check_trackers(where.trackers)
    place = processes(where.device)
    if config.example.batch_size % place.num_processes:
        size, count = config.example.batch_size, place.num_processes
        raise ConfigError(f"example.batch_size is {size}; it cannot be shared evenly by {count} processes")
    console = Console(quiet=not place.is_main_process, soft_wrap=True, highlight=False, markup=False)
    console.print("The phases of the method are not built yet: this trains the engine's example phase.")
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
        try:
            result = _example(opened, config, where, stop, console)
        except Interrupted as reached:
            raise Interrupted(f"{reached}; go on with: {where.again}") from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted at once; go on with: {where.again}") from None
        metrics = result["metrics"]
        console.print(
            f"example: {metrics['held_out_accuracy']:.1%} of held-out clips told right (chance: 12.5%), "
            f"best at step {result['step']}; weights in {where.folder / result['checkpoint'] / 'pretrained'}"
        )
    place.destroy_process_group()


def _understood(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """A saved config as this version reads it: fields that are new since have their defaults."""
    return to_json(from_json(Config, saved))


def _example(run: Run, config: Config, where: Where, stop: StopOnSignal, console: Console) -> Mapping[str, Any]:
    name, place = ExamplePhase.name, processes(where.device)
    result = _finished(run, name, console)
    if agreed(result is not None, place.device):
        if result is None:
            raise RunError(f"not every process sees the same files in {run.folder}; put it on a shared disk")
        console.print(f"{name}: trained with this config already, not run again")
        return result
    best = train(
        ExamplePhase(config.example, config.seed),
        config.example.loop,
        seed=config.seed,
        folder=run.folder / name,
        device=where.device,
        trackers=tuple(where.trackers),
        stop=stop.asked,
        console=console,
    )
    result = {"step": best.step, "metrics": best.metrics, "checkpoint": str(best.path.relative_to(run.folder))}
    if place.is_main_process:
        run.finish(name, inputs={}, result=result)
    return result


def _finished(run: Run, phase: str, console: Console) -> Mapping[str, Any] | None:
    """What a phase has come to, if it is complete and its weights are as they were written."""
    result = run.result(phase, inputs={})
    if result is not None:
        try:
            check_folder(run.folder / result["checkpoint"])
        except CheckpointError as error:
            console.print(f"{phase}: complete, but {error}", style="yellow")
            return None
    return result
