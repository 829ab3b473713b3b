"""`xskill sweep`: all that tables need, trained and scored; what is there is not done again."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from xskill.engine.config import did_you_mean
from xskill.engine.folder import make_folder, read_manifest
from xskill.engine.log import plain_console
from xskill.engine.run import held
from xskill.engine.signals import leaving_at_once
from xskill.errors import ConfigError, RunError
from xskill.evaluate import ANY_TASK, SUITES
from xskill.jobs import OWN, Sweep, jobs_of, suite_of
from xskill.presets import PRESETS
from xskill.rows import OURS, SWEEPS, Row
from xskill.version import exact_version
from xskill.work import Work


def sweep(names: Sequence[str], options: Sweep) -> None:
    """Do what the options say for the tables of these names."""
    if options.preset not in PRESETS:
        raise ConfigError(f"there is no preset '{options.preset}'{did_you_mean(options.preset, PRESETS)}")
    if not options.seeds or len(set(options.seeds)) < len(options.seeds):
        raise ConfigError(f"--seeds are {list(options.seeds)}; name one or more, each once")
    if options.suite and options.suite not in SUITES:
        raise ConfigError(f"there is no suite '{options.suite}'{did_you_mean(options.suite, SUITES)}")
    if options.model and options.seeds != (seed := read_manifest(options.model.expanduser()).get("seed", 0),):
        raise ConfigError(f"{options.model} is one training, of seed {seed}; give --seeds {seed}")
    if options.at_once < 1:
        raise ConfigError(f"--at-once is {options.at_once}; expected at least 1")
    try:
        more = shlex.split(options.train)
    except ValueError as error:
        raise ConfigError(f"--train is {options.train!r}: {error}") from None
    if any(word.split("=")[0] == OWN for word in more):
        raise ConfigError(f"--demos names the demonstrations of a sweep; leave {OWN} out of --train")
    with leaving_at_once():
        from xskill.evaluate.command import conditions_of

    conditions_of(options.conditions)
    exact_version()  # of what is run, not of what is there when it ends
    out, tables = options.out.expanduser(), _tables(names, options)
    for name, rows in tables.items():
        for row in rows:
            _check_row(row, options.suite or suite_of(name), [*row.words, *more], options.model)
    jobs, work = jobs_of(tables, options.seeds, out, options.suite), Work(options, plain_console(), out)
    with ExitStack() as stack:
        if not options.as_is:
            make_folder(out)
            stack.enter_context(held(out))
            work.take_model()
        for job in jobs:
            work.check(job)
        left = [job for job in (replace(job, methods=work.missing(job)) for job in jobs) if job.methods]
        if not options.as_is:
            work.do(left)
        unknown = {(job.folder, s, m) for job in left for s, some in work.missing(job).items() for m in some}
        empty = [name for name, rows in tables.items() if not work.tabulate(name, rows, unknown)]
    if options.as_is:
        work.left_out(unknown)
        if empty:
            raise RunError(f"nothing of {' and '.join(empty)} has been scored in {out}")
    elif unknown:
        folders = sorted({str(folder) for folder, *_ in unknown})
        raise RunError(f"{len(folders)} could not be trained or scored, their rows are missing: {', '.join(folders)}")


def _check_row(row: Row, suite: str, words: Sequence[str], model: Path | None) -> None:
    """Raises `ConfigError` for a row that, when it is trained, could not be scored or compared."""
    papers, wanted = not any(word.startswith("--data.unseen") for word in words), suite != "validation"
    if papers != wanted and suite not in ANY_TASK:
        about = "is about the paper's task, which" if wanted else "is for others than the paper's task, which alone"
        raise ConfigError(f"{suite} {about} '{row.name}' leaves {'in' if wanted else 'out of'} training")
    if model and not (row.keeps_policy or row.training == OURS.training):
        raise ConfigError(f"'{row.name}' does not go on from {model}, so the two could not be compared; see --rows")


def _tables(names: Sequence[str], options: Sweep) -> dict[str, list[Row]]:
    """The rows of each table that are wanted."""
    wanted = set(options.rows)
    known = {row.name: row for name in names for row in SWEEPS[name][1]}
    if unknown := wanted - known.keys():
        choice = ", ".join(f"'{name}'" for name in known)
        raise ConfigError(f"{' and '.join(names)} has no row '{min(unknown)}' (choose from {choice})")
    return {
        name: [
            row.resolved(options.preset)
            for row in SWEEPS[name][1]
            if (not wanted or row.name in wanted) and _can_be_read(row, options, options.suite or suite_of(name))
        ]
        for name in names
    }


def _can_be_read(row: Row, options: Sweep, suite: str) -> bool:
    """Whether a row's plans can be read as it says: a transformer has no place that it could be told, and nobody has
    recorded orders that are new."""
    if row.method == "replay":
        return suite != "orders"
    kind, words = PRESETS[row.preset or options.preset][1].transfer.aligner.kind, shlex.join(row.words)
    told = f"{words} {options.train}".replace("=", " ").split("--transfer.aligner.kind ")[1:]
    return row.method != "told" or (told[-1].split()[0] if told else kind) == "tracker"
