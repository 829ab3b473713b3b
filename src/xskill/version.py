"""Which xskill this is."""

import hashlib
import importlib.metadata
import platform
import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def exact_version() -> str:
    """The version and what else names the code that runs, to be kept with what it makes.

    In a git checkout that is the commit, `changed` where files of the package are not as committed; elsewhere a hash
    of the package's source.
    """
    package = Path(__file__).resolve().parent
    commit = _git(package, "rev-parse", "--short=12", "HEAD")
    if commit and _git(package, "ls-files", Path(__file__).name):  # the checkout may be another project's
        changed = _git(package, "--no-optional-locks", "status", "--porcelain", "--", ".") != ""
        return f"{__version__}+git.{commit}" + ".changed" * changed
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+source.{digest.hexdigest()[:12]}"


def versions() -> dict[str, str]:
    """What else numbers may depend on: libraries, where they are installed."""
    found = {"xskill": exact_version(), "python": platform.python_version()}
    for name in ("torch", "diffusers", "mujoco"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *words: str) -> str | None:
    """What git answers, or None when it does not."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
