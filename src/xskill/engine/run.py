"""The run folder: one configuration, one folder per phase, one process (group) at a time working in it."""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xskill.engine.config import differences
from xskill.engine.folder import ASIDE, remove, sweep, to_bytes, write_file
from xskill.errors import ConfigError, RunError
from xskill.version import __version__

CONFIG = "config.json"
NOT_PHASES = ("seed", "base", "data")
"""Parts of a config that every phase depends on."""
_LOCK = ".lock"
_DONE = "done.json"
_INPUTS = "inputs.json"


@dataclass(frozen=True)
class Run:
    """A run folder and the config of what is trained in it."""

    folder: Path
    config: Mapping[str, Any]

    def result(self, phase: str, inputs: Mapping[str, str]) -> dict[str, Any] | None:
        """What `finish` noted for a phase, or None when it is unfinished or its config or inputs have changed."""
        try:
            done = json.loads((self.folder / phase / _DONE).read_bytes())
            return dict(done["result"]) if done["key"] == self._key(phase, inputs) else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def begin(self, phase: str, inputs: Mapping[str, str]) -> None:
        """Note what a phase is trained on. Raises `RunError` when it was begun on something else."""
        path = self.folder / phase / _INPUTS
        if (self.folder / phase / "checkpoints").exists() and path.exists():
            before = json.loads(path.read_bytes())
            changed = [name for name in {**before, **inputs} if before.get(name) != inputs.get(name)]
            if changed:
                raise RunError(
                    f"phase '{phase}' in {self.folder} was begun on other data ({', '.join(changed)}); "
                    "replace the run with --overwrite, or choose another --out"
                )
        path.parent.mkdir(exist_ok=True)
        write_file(path, to_bytes(dict(inputs)))

    def finish(self, phase: str, inputs: Mapping[str, str], result: Mapping[str, Any]) -> None:
        """Note that a phase is complete, so that it is not run again while its config and inputs stay the same."""
        write_file(self.folder / phase / _DONE, to_bytes({"key": self._key(phase, inputs), "result": result}))

    def _key(self, phase: str, inputs: Mapping[str, str]) -> str:
        parts = {"phase": phase, "config": self.config[phase], "seed": self.config["seed"], "inputs": dict(inputs)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextmanager
def open_run(
    run: Run, preset: str, load: Callable[[Mapping[str, Any]], Mapping[str, Any]], resume: bool, overwrite: bool
) -> Iterator[None]:
    """Create, continue or replace a run folder, and hold it against other processes.

    A folder that exists needs `resume` (same config, but for phases not yet begun) or `overwrite` (only a run folder
    is ever deleted). `load` reads a saved config as this version understands it. Raises `RunError` otherwise.
    """
    folder = run.folder
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other: continue the run, or replace it")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give --out a folder")
    if _content(folder):
        _require_run(folder)
    elif resume:
        raise RunError(f"there is no run to resume in {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
    with held(folder):
        sweep(folder)
        content = _content(folder)  # looked at again: another process may have been here
        if any(entry.name != CONFIG for entry in content):  # with a config alone, nothing has begun
            _require_run(folder)
            if overwrite:
                for entry in content:
                    remove(entry)
            elif resume:
                _refuse_changes(run, load(read_config(folder / CONFIG)[1]))
            else:
                raise RunError(
                    f"{folder} already holds a run; continue it with --resume or replace it with --overwrite"
                )
        write_file(folder / CONFIG, to_bytes({"xskill": __version__, "preset": preset, "config": run.config}))
        yield


def _content(folder: Path) -> list[Path]:
    """What is in a folder, but for what a process at work or a killed one leaves there.

    The config comes last: deleted in this order, a run killed on the way is still one.
    """
    entries = [entry for entry in folder.glob("*") if entry.name != _LOCK and not entry.name.startswith(ASIDE)]
    return sorted(entries, key=lambda entry: entry.name == CONFIG)


def _require_run(folder: Path) -> None:
    try:
        read_config(folder / CONFIG)
    except ConfigError:
        raise RunError(f"{folder} is neither empty nor a run folder; give --out another one") from None


def read_config(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Preset name and config of a `config.json` written by `open_run`. Raises `ConfigError`."""
    try:
        saved = json.loads(path.read_bytes())
        preset, config = saved["preset"], saved["config"]
        if not (isinstance(preset, str) and isinstance(config, dict)):
            raise TypeError
        return preset, config
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a config file as a run writes it (JSON with 'preset' and 'config')") from None


def _refuse_changes(run: Run, saved: Mapping[str, Any]) -> None:
    phases = {name for name in run.config if (run.folder / name).exists()}
    # What is no phase, the seed, the base and the data, has begun with the first of them.
    begun = {name for name in run.config if name in phases or (phases and name in NOT_PHASES)}
    changed = {name: pair for name, pair in differences(saved, run.config).items() if name.split(".")[0] in begun}
    if changed:
        listed = ", ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in changed.items())
        raise RunError(
            f"{run.folder} was trained with another config ({listed}); resume with the old one, replace the run with "
            "--overwrite, or choose another --out"
        )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes. Raises `RunError` when another one does."""
    with (folder / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RunError(f"another process ({lock.read() or 'unknown'}) is working in {folder}") from None
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}")
        lock.flush()
        yield
