"""The `xskill` command. Each command imports what it needs when it runs, so that `--help` answers at once."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

import tyro

import xskill
from xskill.engine.config import CORES, DATA, Device, Tracker, did_you_mean, from_json, unset
from xskill.engine.signals import leaving_at_once
from xskill.engine.workers import end_with_parent
from xskill.errors import ConfigError, Interrupted, XSkillError
from xskill.evaluate import SUITES
from xskill.presets import PRESETS, Config
from xskill.version import __version__

Start = TypeVar("Start")

_TYRO = (tyro.conf.CascadeSubcommandArgs, tyro.conf.FlagCreatePairsOff)


@dataclass(frozen=True)
class Named:
    """A configuration and the preset it comes from."""

    preset: tyro.conf.Suppress[tyro.conf.Fixed[str]]
    config: Annotated[Config, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Train(Generic[Start]):
    """Train every phase of a preset; any of its values can be given, as in --discover.loop.steps 200.

    Discover: skills shared by all bodies. Transfer: a policy that executes them, an aligner that follows a plan.

    Several processes: torchrun --nproc-per-node 2 -m xskill train ...
    """

    start: Annotated[Start, tyro.conf.arg(name="")]
    config: Path | None = None
    """Start from a config.json that a run has saved, instead of a preset."""
    out: Annotated[Path | None, unset("runs/PRESET")] = None
    """Run folder."""
    resume: bool = False
    """Continue the run in that folder; then neither preset nor --config is needed."""
    overwrite: bool = False
    """Replace the run in that folder."""
    device: Device = "auto"
    """Where to train; auto takes a GPU when there is one."""
    log: tuple[Tracker, ...] = ()
    """Trackers to log to, besides log.jsonl."""
    data_folder: Path = DATA
    """Folder for frames and scripted demonstrations, made when first needed and shared by all runs (XSKILL_DATA names
    another default)."""
    workers: int = CORES
    """Processes that simulate demonstrations and render frames."""


@dataclass(frozen=True)
class Info:
    """Print versions, devices, how frames are rendered, and what is missing for what."""

    json: bool = False
    """As one JSON object."""


_DATA = {
    "make kitchen": "film demonstrations of the kitchen, scripted or recorded",
    "import": "make a dataset of videos, or of what other libraries wrote",
    "show": "what a dataset holds, and a sheet of its frames",
    "check": "whether a dataset is fit to be learned from, and why not",
}


def data(args: Sequence[str]) -> None:
    if args[:1] == ["make"] and args[1:2] in ([], ["-h"], ["--help"]):
        args = []
    verb = _first([" ".join(args[:2]), *args[2:]] if args[:1] == ["make"] else args, "data VERB", _DATA)
    if verb is None:
        return
    if verb == "make kitchen":
        from xskill.kitchen.make import MakeKitchen, make

        return make(tyro.cli(MakeKitchen, prog="xskill data make kitchen", args=args[2:], config=_TYRO))
    from xskill.data import command

    if verb == "import":
        kind = _first(args[1:], "data import SOURCE", command.SOURCES)
        if kind is not None:
            prog = f"xskill data import {kind}"
            command.import_(kind, tyro.cli(command.Import, prog=prog, args=args[2:], config=_TYRO))
    elif verb == "show":
        command.show(tyro.cli(command.Show, prog="xskill data show", args=args[1:], config=_TYRO))
    else:
        command.check(tyro.cli(command.Check, prog="xskill data check", args=args[1:], config=_TYRO))


def evaluate(args: Sequence[str]) -> None:
    suite = _first(args, "eval SUITE --model FOLDER", SUITES)
    if suite is None:
        return
    if sum(arg.split("=")[0] == "--model" for arg in args) > 1:
        raise ConfigError("--model is given more than once; name all models after one, as in --model A B")
    with leaving_at_once():
        from xskill.evaluate.command import Evaluate
        from xskill.evaluate.command import evaluate as run

    run(suite, tyro.cli(Evaluate, prog=f"xskill eval {suite}", args=args[1:], config=_TYRO))


def sweep(args: Sequence[str]) -> None:
    from xskill.jobs import Sweep
    from xskill.rows import SWEEPS
    from xskill.sweep import sweep as run

    usage, known = "sweep TABLE --demos PATH", {name: about for name, (about, _) in SWEEPS.items()}
    if _first(args, usage, known) is None:
        return
    names = list(takewhile(lambda arg: not arg.startswith("-"), args))
    for name in names:
        _first([name], usage, known)
    options = tyro.cli(Sweep, prog=f"xskill sweep {' '.join(names)}", args=args[len(names) :], config=_TYRO)
    try:
        run(names, options)
    finally:
        if not options.as_is and any((options.table(name) / "table.md").is_file() for name in names):
            _report_on(options.out.expanduser())


def _first(args: Sequence[str], usage: str, known: Mapping[str, str]) -> str | None:
    """The word that must come first; None when help was asked for, and given. `usage` has it in capitals."""
    words = usage.split()
    place = next(index for index, word in enumerate(words) if word.isupper())
    command, what = " ".join(words[:place]), words[place]
    if not args or args[0] in ("-h", "--help"):
        width = max(map(len, known))
        lines = "\n".join(f"  {name:{width}}  {about}" for name, about in known.items())
        print(f"usage: xskill {usage} [OPTIONS]\n\n{lines}\n\n`xskill {command} {what} --help` tells more.")
        return None
    if args[0].startswith("-"):
        raise ConfigError(f"name the {what.lower()} first, as in xskill {command} {next(iter(known))} {args[0]} ...")
    if args[0] not in known:
        raise ConfigError(f"there is no {what.lower()} '{args[0]}'{did_you_mean(args[0], known)}")
    return args[0]


def report(args: Sequence[str]) -> None:
    from xskill.report import Report
    from xskill.report import report as run

    run(tyro.cli(Report, prog="xskill report", args=args, config=_TYRO))


def _report_on(folder: Path) -> None:
    """A page of what there is; without one, nothing is lost."""
    if os.environ.get("RANK", "0") == "0":  # of several processes, one writes
        try:
            report([str(folder)])
        except Exception as error:
            _say(f"there is no page about it: {error}", error=True)


def compose(args: Sequence[str]) -> None:
    with leaving_at_once():
        from xskill.evaluate.episode import Compose
        from xskill.evaluate.episode import compose as run

    run(tyro.cli(Compose, prog="xskill compose", args=args, config=_TYRO))


_DISCOVER = """Train the first phase of a preset alone: skills shared by all bodies.

`xskill train --resume --out RUN` goes on to the second one, for which options of transfer are kept."""


def _check_options(args: Sequence[str], prog: str) -> None:
    """Raises `ConfigError` for an option that no preset has, naming the nearest."""
    known = {"--help", *_options(Train), *_options(Config)} - {"--start"}
    for arg in args:
        name = arg.split("=")[0].replace("_", "-")
        if name.startswith("--") and name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.7)
            advice = f"did you mean {near[0]}?" if near else f"`{prog} PRESET --help` lists them"
            raise ConfigError(f"there is no option {name} ({advice})")


def _options(config: Any, prefix: str = "--") -> Iterator[str]:
    """The options that a config and those in it make."""
    hints = get_type_hints(config)
    for field in fields(config):
        hint, name = hints[field.name], field.name.replace("_", "-")
        if is_dataclass(hint):
            yield from _options(hint, f"{prefix}{name}.")
        else:
            yield from [f"{prefix}{name}"] + [f"{prefix}no-{name}"] * (hint is bool)


def train(args: Sequence[str], command: str = "train") -> None:
    saved, prog = _saved_config(args), f"xskill {command}"
    if saved is None:
        choice = {name: Named(name, config) for name, (_, config) in PRESETS.items()}
        about = {name: about for name, (about, _) in PRESETS.items()}
        start: Any = tyro.extras.subcommand_type_from_defaults(choice, about)
        _check_options(args, prog)
        about_it = _DISCOVER if command == "discover" else None
        options: Train[Named] = tyro.cli(Train[start], prog=prog, description=about_it, args=args, config=_TYRO)
    else:
        options = tyro.cli(Train[Named], default=Train(saved), prog=prog, args=args, config=_TYRO)
    named = options.start
    folder = (options.out or Path("runs") / named.preset).expanduser()
    again = ["xskill", command, "--resume", "--out", str(folder)]
    again += ["--device", options.device] if options.device != "auto" else []
    again += ["--log", *options.log] if options.log else []
    again += ["--data-folder", str(options.data_folder)] if options.data_folder != DATA else []
    with leaving_at_once():
        from xskill.pipeline import Where, run

    frames, workers = options.data_folder.expanduser(), options.workers
    resume, overwrite, device, trackers = options.resume, options.overwrite, options.device, options.log
    where = Where(folder, shlex.join(again), frames, workers, resume, overwrite, device, trackers)
    run(named.preset, named.config, where, only_discover=command == "discover")
    _report_on(folder)


def demo(args: Sequence[str]) -> None:
    with leaving_at_once():
        from xskill.evaluate.demo import Demo
        from xskill.evaluate.demo import demo as run

    options = tyro.cli(Demo, prog="xskill demo", args=args, config=_TYRO)
    run(options)
    _report_on(options.out.expanduser())


def info(args: Sequence[str]) -> None:
    options = tyro.cli(Info, prog="xskill info", args=args, config=_TYRO)
    from xskill.info import gather, render

    facts = gather()
    print(facts.as_json() if options.json else render(facts))


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], None], str]] = {
    "demo": (demo, "another body shows a task of your choice, the robot does it: `xskill demo --tasks kettle light`"),
    "train": (train, "train a preset"),
    "discover": (partial(train, command="discover"), "train the first phase of a preset alone: skills"),
    "compose": (compose, "let the robot do what a video shows: `xskill compose --model FOLDER --prompt video.mp4`"),
    "eval": (evaluate, "score trained models: `xskill eval table1 --model FOLDER`"),
    "sweep": (sweep, "train and score all that tables need: `xskill sweep table1 fields --demos PATH`"),
    "report": (report, "a page of a run's curves, scores, pictures and videos, or of an episode: `xskill report RUN`"),
    "data": (data, "make datasets: `xskill data make kitchen`"),
    "info": (info, "versions, devices, rendering, what is missing for what"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 asked wrongly, 130 stopped by the user."""
    args = list(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop is the user's
    end_with_parent()
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
        if isinstance(error, Interrupted):
            _say(f"xskill: {error}", error=True)
            return error.exit_code
        known = isinstance(error, XSkillError)
        text = str(error) if known else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        rank = os.environ.get("RANK", "0")
        print(f"xskill: {text}" if rank == "0" else f"xskill, process {rank}: {text}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, XSkillError) else 1
    return 0


def _dispatch(args: Sequence[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        commands = "\n".join(f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items())
        print(
            f"xskill {__version__}: {xskill.__doc__}\n\nusage: xskill COMMAND [OPTIONS]\n\n{commands}\n\n"
            "`xskill COMMAND --help` explains a command; --debug shows where an error arose; --version is the version."
        )
    elif args[0] == "--version":
        print(__version__)
    elif args[0] in COMMANDS:
        COMMANDS[args[0]][0](args[1:])
    else:
        raise ConfigError(f"there is no command '{args[0]}'{did_you_mean(args[0], COMMANDS)}")


def _saved_config(args: Sequence[str]) -> Named | None:
    """The config that `--config`, or `--resume` without a preset, names; None when a preset is to be chosen."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    first.add_argument("--out")
    first.add_argument("--resume", action="store_true")
    first.add_argument("--device")
    known, others = first.parse_known_args(args)
    if "-h" in others or "--help" in others:
        return None
    preset = next((arg for arg in others if arg in PRESETS), None)
    if others and not others[0].startswith("-") and preset is None:
        raise ConfigError(f"there is no preset '{others[0]}'{did_you_mean(others[0], PRESETS)}")
    if preset and known.config:
        raise ConfigError(f"the preset '{preset}' and --config {known.config} exclude each other; give one of them")
    path = known.config
    if path is None and known.resume and preset is None:
        if known.out is None:
            raise ConfigError("--resume without a preset needs --out FOLDER, the run to continue")
        path = str(Path(known.out).expanduser() / "config.json")
    if path is None:
        return None
    from xskill.engine.run import read_config

    name, values = read_config(Path(path).expanduser())
    return Named(name, from_json(Config, values, path))


def _say(text: str, *, error: bool = False) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        print(text, file=sys.stderr if error else sys.stdout, flush=True)
