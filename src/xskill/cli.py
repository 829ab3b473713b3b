"""The `xskill` command. Each command imports what it needs when it runs, so that `--help` answers at once."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

import xskill
from xskill.engine.config import Device, Tracker, did_you_mean, from_json
from xskill.errors import ConfigError, Interrupted, XSkillError
from xskill.presets import PRESETS, Config

Start = TypeVar("Start")

_TYRO = (tyro.conf.CascadeSubcommandArgs, tyro.conf.FlagCreatePairsOff)


@dataclass(frozen=True)
class Named:
    """A configuration and the preset it comes from."""

    preset: tyro.conf.Suppress[tyro.conf.Fixed[str]]
    config: Annotated[Config, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Train(Generic[Start]):
    """Train every phase of a preset; any of its values can be given, as in --example.loop.steps 200.

    Several processes: torchrun --nproc-per-node 2 -m xskill train ...
    """

    start: Annotated[Start, tyro.conf.arg(name="")]
    config: Path | None = None
    """Start from a config.json that a run has saved, instead of a preset."""
    out: Path | None = None
    """Run folder (default: runs/PRESET)."""
    resume: bool = False
    """Continue the run in that folder; then neither preset nor --config is needed."""
    overwrite: bool = False
    """Replace the run in that folder."""
    device: Device = "auto"
    """Where to train; auto takes a GPU when there is one."""
    log: tuple[Tracker, ...] = ()
    """Trackers to log to, besides log.jsonl."""


@dataclass(frozen=True)
class Demo:
    """Train the engine's example phase on generated clips: the phases of the method are not built yet."""

    out: Path = Path("demo")
    """Run folder; an interrupted demo continues, a finished one is shown again."""
    overwrite: bool = False
    """Start anew."""
    device: Device = "auto"
    """Where to train; auto takes a GPU when there is one."""


@dataclass(frozen=True)
class Info:
    """Print versions, devices, how frames are rendered, and what is missing for what."""

    json: bool = False
    """As one JSON object."""


def train(args: Sequence[str]) -> None:
    saved = _saved_config(args)
    if saved is None:
        choice = {name: Named(name, config) for name, (_, config) in PRESETS.items()}
        about = {name: about for name, (about, _) in PRESETS.items()}
        start: Any = tyro.extras.subcommand_type_from_defaults(choice, about)
        options: Train[Named] = tyro.cli(Train[start], prog="xskill train", args=args, config=_TYRO)
    else:
        options = tyro.cli(Train[Named], default=Train(saved), prog="xskill train", args=args, config=_TYRO)
    named, folder = options.start, options.out or Path("runs") / options.start.preset
    from xskill.pipeline import run

    run(
        named.preset,
        named.config,
        folder,
        resume=options.resume,
        overwrite=options.overwrite,
        device=options.device,
        trackers=options.log,
        again=f"xskill train --resume --out {folder}",
    )


def demo(args: Sequence[str]) -> None:
    options = tyro.cli(Demo, prog="xskill demo", args=args, config=_TYRO)
    _say("No skills yet: this trains the engine's example phase, which tells where a disc moves in generated clips.")
    begun = (options.out / "config.json").exists()
    from xskill.pipeline import run

    run(
        "quick",
        PRESETS["quick"][1],
        options.out,
        resume=begun and not options.overwrite,
        overwrite=begun and options.overwrite,
        device=options.device,
        again=f"xskill demo --out {options.out}",
    )


def info(args: Sequence[str]) -> None:
    options = tyro.cli(Info, prog="xskill info", args=args, config=_TYRO)
    from xskill.info import gather, render

    facts = gather()
    print(facts.as_json() if options.json else render(facts))


COMMANDS = {
    "demo": (demo, "see it work, with nothing to prepare"),
    "train": (train, "train a preset"),
    "info": (info, "versions, devices, rendering, what is missing for what"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 asked wrongly, 130 stopped by the user."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        _dispatch(args)
    except SystemExit as exit_:  # tyro has printed its help, or what is wrong with an option
        return exit_.code if isinstance(exit_.code, int) else 2
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        if isinstance(error, KeyboardInterrupt):
            _say("xskill: interrupted", error=True)
            return Interrupted.exit_code
        if isinstance(error, XSkillError):
            _say(f"xskill: {error}", error=True)
            return error.exit_code
        print(f"xskill: unexpected {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return 1
    return 0


def _dispatch(args: Sequence[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        commands = "\n".join(f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items())
        print(
            f"xskill {xskill.__version__}: {xskill.__doc__}\n\nusage: xskill COMMAND [OPTIONS]\n\n{commands}\n\n"
            "`xskill COMMAND --help` explains a command; --debug shows where an error arose; --version is the version."
        )
    elif args[0] == "--version":
        print(xskill.__version__)
    elif args[0] in COMMANDS:
        COMMANDS[args[0]][0](args[1:])
    else:
        raise ConfigError(f"there is no command '{args[0]}'{did_you_mean(args[0], COMMANDS)}")


def _saved_config(args: Sequence[str]) -> Named | None:
    """The config that `--config`, or `--resume` without a preset, names; None when a preset is to be chosen."""
    if args and not args[0].startswith("-") and args[0] not in PRESETS:
        raise ConfigError(f"there is no preset '{args[0]}'{did_you_mean(args[0], PRESETS)}")
    path = _option(args, "--config")
    if path is None and "--resume" in args and not any(arg in PRESETS for arg in args):
        out = _option(args, "--out")
        if out is None:
            raise ConfigError("--resume without a preset needs --out FOLDER, the run to continue")
        path = f"{out}/config.json"
    if path is None:
        return None
    from xskill.engine.run import read_config

    preset, values = read_config(Path(path))
    return Named(preset, from_json(Config, values, path))


def _option(args: Sequence[str], name: str) -> str | None:
    for position, arg in enumerate(args):
        if arg == name and position + 1 < len(args):
            return args[position + 1]
        if arg.startswith(f"{name}="):
            return arg.removeprefix(f"{name}=")
    return None


def _say(text: str, *, error: bool = False) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        print(text, file=sys.stderr if error else sys.stdout, flush=True)
