"""`xskill train`: the phases of a run, one after the other, each skipped when its result is already there."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from xskill.engine.config import Device, Tracker, to_json
from xskill.engine.distributed import processes, wait_for_everyone
from xskill.engine.example import ExamplePhase
from xskill.engine.loop import train
from xskill.engine.run import Run, open_run
from xskill.errors import Interrupted
from xskill.presets import Config


def run(
    preset: str,
    config: Config,
    folder: Path,
    *,
    resume: bool,
    overwrite: bool,
    device: Device,
    again: str,
    trackers: Sequence[Tracker] = (),
) -> None:
    """Train every phase in `folder`. `again` is the command that continues it, told to a user who interrupts."""
    place = processes(device)
    console = Console(quiet=not place.is_main_process, soft_wrap=True, highlight=False)
    with ExitStack() as stack:
        opened = Run(folder, to_json(config))
        if place.is_main_process:
            opened = stack.enter_context(open_run(folder, preset, opened.config, resume=resume, overwrite=overwrite))
        wait_for_everyone()
        try:
            result = _example(opened, config, device, tuple(trackers), console)
        except Interrupted as stop:
            raise Interrupted(f"{stop}; go on with: {again}") from None
        metrics = result["metrics"]
        console.print(
            f"example: {metrics['held_out_accuracy']:.1%} of held-out clips told right (chance: 12.5%), "
            f"best at step {result['step']}; weights in {folder / result['weights']}"
        )
    place.destroy_process_group()


def _example(
    run: Run, config: Config, device: Device, trackers: tuple[Tracker, ...], console: Console
) -> Mapping[str, Any]:
    result = run.result("example", inputs={})
    if result is not None:
        console.print("example: trained with this config already, not run again")
        return result
    phase = ExamplePhase(config.example, config.seed)
    folder = run.folder / phase.name
    best = train(
        phase, config.example.loop, seed=config.seed, folder=folder, device=device, trackers=trackers, console=console
    )
    result = {"step": best.step, "metrics": best.metrics, "weights": str(best.weights.relative_to(run.folder))}
    if processes(device).is_main_process:
        run.finish(phase.name, inputs={}, result=result)
    return result
