"""What `xskill info` says: versions, devices, how frames are rendered here, and what is missing for what."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass

from xskill.engine.config import CORES
from xskill.version import exact_version

PACKAGES = (
    "torch", "accelerate", "diffusers", "safetensors", "mujoco", "gymnasium", "gymnasium-robotics",
    "fast-simplification", "av", "pyarrow", "numpy", "scikit-learn", "matplotlib", "tyro", "rich",
)  # fmt: skip

EXTRAS = {
    "minari": (("h5py", "minari"), "reading Minari datasets"),
    "robomimic": (("h5py",), "reading robomimic HDF5 files"),
    "zarr": (("zarr",), "reading diffusion_policy zarr files"),
    "tensorboard": (("tensorboard",), "training logs in TensorBoard"),
    "wandb": (("wandb",), "training logs in Weights & Biases"),
}

# Prints the renderer's name once a picture can really be drawn. A process of its own: a missing driver may abort it.
_PROBE = """
import mujoco
from OpenGL import GL
context = mujoco.GLContext(16, 16)
context.make_current()
print(GL.glGetString(GL.GL_RENDERER).decode())
"""


@dataclass(frozen=True)
class Extra:
    """An optional part: what it is for, and what must be installed for it."""

    purpose: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Rendering:
    """How MuJoCo draws here: `backend` is None when no way works."""

    backend: str | None
    renderer: str


@dataclass(frozen=True)
class Facts:
    """What is here."""

    xskill: str
    python: str
    system: str
    packages: dict[str, str | None]
    cpu_cores: int
    gpus: list[str]
    rendering: Rendering
    extras: dict[str, Extra]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def gather() -> Facts:
    """Look at this machine; draws a tiny picture to see whether rendering works, so it takes a few seconds."""
    return Facts(
        xskill=exact_version(),
        python=platform.python_version(),
        system=platform.platform(),
        packages={name: _version(name) for name in PACKAGES},
        cpu_cores=CORES,
        gpus=_gpus(),
        rendering=_rendering(),
        extras={
            name: Extra(purpose, tuple(p for p in needs if _version(p) is None))
            for name, (needs, purpose) in EXTRAS.items()
        },
    )


def render(facts: Facts) -> str:
    """The facts for a person."""
    lines = [f"xskill {facts.xskill} on Python {facts.python}, {facts.system}", "", "packages"]
    lines += [f"  {name:20} {version or 'MISSING: pip install ' + name}" for name, version in facts.packages.items()]
    lines += ["", "devices", f"  {'CPU':20} {facts.cpu_cores} cores"]
    lines += [f"  {f'cuda:{i}':20} {gpu}" for i, gpu in enumerate(facts.gpus)] or [
        f"  {'GPU':20} none that torch can use"
    ]
    rendering = facts.rendering
    lines += ["", "rendering", f"  {rendering.backend or 'none works':20} {rendering.renderer}", "", "extras"]
    for name, extra in facts.extras.items():
        state = f"missing {', '.join(extra.missing)}: pip install -e '.[{name}]'" if extra.missing else "installed"
        lines.append(f"  {name:20} {extra.purpose}: {state}")
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    if _version("torch") is None:
        return []
    import torch

    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB" for gpu in found]


def _rendering() -> Rendering:
    """Try the backend the user chose through MUJOCO_GL, or else each in turn."""
    if importlib.util.find_spec("mujoco") is None:
        return Rendering(None, "mujoco is not installed")
    chosen = os.environ.get("MUJOCO_GL")
    why = ""
    for backend in [chosen] if chosen else ["egl", "osmesa", "glfw"]:
        environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend if backend != "glfw" else ""}
        try:
            probe = subprocess.run(
                [sys.executable, "-c", _PROBE], env=environment, capture_output=True, text=True, timeout=60
            )
        except subprocess.TimeoutExpired:
            why = f"{backend} did not answer within a minute"
            continue
        if probe.returncode == 0:
            return Rendering(backend, probe.stdout.strip().splitlines()[-1])
        why = (probe.stderr.strip().splitlines() or ["no reason given"])[-1]
    return Rendering(None, f"{why}; on Debian or Ubuntu: apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri")
