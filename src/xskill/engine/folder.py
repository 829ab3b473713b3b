"""Files and folders that are whole and checked, or not there: written aside, flushed, hashed, then renamed."""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xskill.errors import CheckpointError, ConfigError

MANIFEST = "manifest.json"
ASIDE = ".aside-"  # what a killed process may leave behind; `sweep` removes it


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file that has one a line; what a kill has torn is passed over, and no file has none."""
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def make_folder(path: Path) -> None:
    """Make a folder that results go to, before the work: a wrong name then costs none. Raises `ConfigError`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {path} cannot be made: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise ConfigError(f"nothing can be written into the folder {path}")


def write_file(path: Path, data: bytes) -> None:
    """Write or replace one file atomically and durably. Raises `CheckpointError` when the disk refuses."""
    aside = path.with_name(f"{ASIDE}{os.getpid()}-{path.name}")
    try:
        _write_durably(aside, data)
        aside.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise refused(path, error) from error


def write_folder(path: Path, files: Iterable[tuple[str, bytes]], about: Mapping[str, Any]) -> None:
    """Write the folder `path` with these files and a manifest (their sha256, plus `about`), whole or not at all.

    A folder already there is replaced. Raises `CheckpointError` when the disk refuses (full, read-only);
    nothing that was on disk before is touched then.
    """
    aside = path.with_name(f"{ASIDE}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        hashes = {}
        for name, data in files:
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_durably(target, data)
            hashes[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        _finish(aside, path, dict(about) | {"files": hashes})
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise refused(path, error) from error


def finish_folder(made: Path, path: Path, about: Mapping[str, Any]) -> None:
    """`write_folder` for files too large to hand over: they are in the folder `made` already, which becomes `path`."""
    try:
        hashes = {}
        (made / MANIFEST).unlink(missing_ok=True)  # of a finish that was killed
        for file in sorted(path for path in made.rglob("*") if path.is_file()):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            hashes[file.relative_to(made).as_posix()] = {"sha256": digest, "bytes": file.stat().st_size}
        _finish(made, path, dict(about) | {"files": hashes})
    except OSError as error:
        raise refused(path, error) from error


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a folder, its own seal checked. Raises `CheckpointError` that names the damage."""
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
        seal = manifest.pop("sha256")
    except FileNotFoundError:
        missing = f"{path} has no {MANIFEST}" if path.is_dir() else f"there is no folder {path}"
        raise CheckpointError(missing) from None
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        raise CheckpointError(f"{path / MANIFEST} is not readable") from None
    if seal != _seal(manifest):
        raise CheckpointError(f"{path / MANIFEST} was changed after it was written")
    return manifest


def check_folder(path: Path) -> dict[str, Any]:
    """The manifest of a folder after every file was compared with it. Raises `CheckpointError` at the first damage."""
    manifest = read_manifest(path)
    for damage in damages(path, manifest):
        raise CheckpointError(damage)
    return manifest


def damages(path: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for every file of a folder that is not as its manifest says it was written."""
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            yield f"{file} is missing"
        elif (size := file.stat().st_size) != expected["bytes"]:
            yield f"{file} has {size} bytes; {expected['bytes']} were written"
        else:
            with file.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != expected["sha256"]:
                    yield f"{file} does not match its sha256; its content changed on disk"


def whole(path: Path) -> bool:
    """Whether `check_folder` finds nothing wrong."""
    try:
        check_folder(path)
    except CheckpointError:
        return False
    return True


def remove(path: Path) -> None:
    """Delete a file or folder so that a kill half-way leaves it either whole or gone, never in part."""
    _delete(_put_aside(path))


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written in `folder`, but not what another is writing."""
    for aside in folder.glob(f"{ASIDE}*"):
        writer = aside.name.removeprefix(ASIDE).split("-")[0]
        if not (writer.isdigit() and _alive(int(writer))):
            _delete(aside)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return process != os.getpid()  # who sweeps writes nothing


def refused(path: Path, error: OSError) -> CheckpointError:
    """The error for a disk that does not take what it is given."""
    advice = "; make room and start again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return CheckpointError(f"could not write {path}: {error.strerror or error}{advice}")


def to_bytes(value: object) -> bytes:
    """Readable JSON, the same bytes for the same value; NaN is refused."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def without_nan(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers as JSON can hold them: what is not finite becomes null."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Names a folder by what its files hold."""
    return hashlib.sha256(json.dumps(manifest["files"], sort_keys=True).encode()).hexdigest()[:16]


def content_of(named: str) -> str:
    """Names what is in a file or folder, wherever it lies: a hash of the file, or of the names and sizes in the folder.

    Several are joined with a plus sign; what is neither names itself.
    """
    if not Path(named).expanduser().exists() and "+" in named:
        return "+".join(map(content_of, named.split("+")))
    path, digest = Path(named).expanduser(), hashlib.sha256()
    if path.is_file():
        digest.update(path.read_bytes())
    elif path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()} {file.stat().st_size}\n".encode())
    else:
        return named
    return digest.hexdigest()[:16]


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _finish(made: Path, path: Path, manifest: dict[str, Any]) -> None:
    """Seal a folder whose files are all written, and give it its name."""
    _write_durably(made / MANIFEST, to_bytes(manifest | {"sha256": _seal(manifest)}))
    for folder in [entry for entry in made.rglob("*") if entry.is_dir()] + [made]:
        _flush_folder(folder)
    gone = _put_aside(path)
    made.rename(path)
    _flush_folder(path.parent)
    _delete(gone)


def _put_aside(path: Path) -> Path:
    gone = path.with_name(f"{ASIDE}gone-{path.name}")
    _delete(gone)
    if path.exists() or path.is_symlink():
        path.rename(gone)
    return gone


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
