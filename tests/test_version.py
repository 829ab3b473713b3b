"""What names the code that made a model or a table."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from xskill import __version__
from xskill.version import __file__ as source


def named(package: Path) -> str:
    words = [sys.executable, "-c", "from xskill.version import exact_version; print(exact_version())"]
    done = subprocess.run(
        words, cwd=package.parent, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_is_the_commit_in_a_checkout_and_a_hash_of_the_source_elsewhere(tmp_path: Path) -> None:
    package = tmp_path / "src/xskill"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(source, package / "version.py")
    copied = named(package)
    assert copied.startswith(f"{__version__}+source.")
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("src\n")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "commit", "-qm", "another project, in which xskill is only installed")
    assert named(package) == copied
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "xskill itself")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert named(package) == f"{__version__}+git.{commit}"
    (package / "more.py").write_text("x = 1\n")
    assert named(package) == f"{__version__}+git.{commit}.changed"
    shutil.rmtree(tmp_path / ".git")
    assert named(package).startswith(f"{__version__}+source.")
    assert named(package) != copied
