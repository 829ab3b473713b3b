"""The run folder: one configuration, one folder per phase, one process (group) at a time working in it."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xskill
from xskill.engine.config import differences
from xskill.engine.folder import remove, sweep, to_bytes, write_file
from xskill.errors import ConfigError, RunError

CONFIG = "config.json"
_LOCK = ".lock"
_DONE = "done.json"


@dataclass(frozen=True)
class Run:
    """An opened run folder."""

    folder: Path
    config: Mapping[str, Any]

    def result(self, phase: str, inputs: Mapping[str, str]) -> dict[str, Any] | None:
        """What `finish` noted for a phase, or None when it is unfinished or its config or inputs have changed."""
        try:
            done = json.loads((self.folder / phase / _DONE).read_bytes())
            return dict(done["result"]) if done["key"] == self._key(phase, inputs) else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def finish(self, phase: str, inputs: Mapping[str, str], result: Mapping[str, Any]) -> None:
        """Note that a phase is complete, so that it is not run again while its config and inputs stay the same."""
        write_file(self.folder / phase / _DONE, to_bytes({"key": self._key(phase, inputs), "result": result}))

    def _key(self, phase: str, inputs: Mapping[str, str]) -> str:
        parts = {"phase": phase, "config": self.config[phase], "seed": self.config["seed"], "inputs": dict(inputs)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextmanager
def open_run(folder: Path, preset: str, config: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[Run]:
    """Create, continue or replace a run folder, and hold it against other processes.

    A folder that exists needs `resume` (same config, but for phases not yet begun) or `overwrite` (only a run folder
    is ever deleted). Raises `RunError` otherwise.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other: continue the run, or replace it")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give --out a folder")
    if folder.is_dir() and any(entry.name != _LOCK for entry in folder.iterdir()):
        if not (folder / CONFIG).exists():
            raise RunError(f"{folder} is not empty and not a run folder (it has no {CONFIG}); give --out another one")
        if not (resume or overwrite):
            raise RunError(f"{folder} already holds a run; continue it with --resume, or replace it with --overwrite")
    elif resume:
        raise RunError(f"there is no run to resume in {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
    with _held(folder):
        if overwrite:
            for entry in folder.iterdir():
                if entry.name == _LOCK:
                    continue
                remove(entry) if entry.is_dir() else entry.unlink()
        sweep(folder)
        if resume:
            _refuse_changes(folder, config)
        write_file(folder / CONFIG, to_bytes({"xskill": xskill.__version__, "preset": preset, "config": config}))
        yield Run(folder, config)


def read_config(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Preset name and config of a `config.json` written by `open_run`. Raises `ConfigError`."""
    try:
        saved = json.loads(path.read_bytes())
        return str(saved["preset"]), saved["config"]
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a config file as a run writes it (JSON with 'preset' and 'config')") from None


def _refuse_changes(folder: Path, config: Mapping[str, Any]) -> None:
    _, saved = read_config(folder / CONFIG)
    changed = {
        name: values
        for name, values in differences(saved, config).items()
        if "." not in name or (folder / name.split(".")[0]).exists()
    }
    if changed:
        listed = ", ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in changed.items())
        raise RunError(
            f"{folder} was trained with another config ({listed}); resume with the old one, or choose another --out"
        )


@contextmanager
def _held(folder: Path) -> Iterator[None]:
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
