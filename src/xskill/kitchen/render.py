"""Frames of the kitchen, fast: one context a process, nothing allocated per frame, no shadows, no multisampling."""

import atexit
import importlib
import os
import weakref
from dataclasses import asdict, dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.engine.config import require
from xskill.errors import ConfigError
from xskill.kitchen.scene import Scene

Frame = npt.NDArray[np.uint8]

CAMERAS = ("side", "wrist")


@dataclass(frozen=True)
class RenderOptions:
    """What a frame depends on besides the state; kept with the data, the same in training and evaluation."""

    height: int = 112
    """Rows of a frame."""
    width: int = 112
    """Columns of a frame."""
    shadows: bool = False
    """Shadows cast by the four lights, with 4096-pixel maps: forty times slower in software."""
    reflections: bool = False
    """A faint mirror in the floor."""
    samples: int = 0
    """Multisampling."""
    simplified: bool = True
    """Coarser shapes (see `Scene`): five times faster in software, SSIM 0.98."""

    def __post_init__(self) -> None:
        require(self.height >= 1, "height", self.height, "at least 1")
        require(self.width >= 1, "width", self.width, "at least 1")

    def about(self) -> dict[str, object]:
        """What to keep with the frames."""
        return {"mujoco": mujoco.__version__, **asdict(self)}


class Renderer:
    """Draws a scene. Close it, or use it as a context manager, to give the GL context back."""

    def __init__(self, scene: Scene, options: RenderOptions = RenderOptions()) -> None:
        model = scene.model
        model.vis.global_.offheight, model.vis.global_.offwidth = options.height, options.width
        model.vis.quality.offsamples = options.samples
        model.vis.quality.shadowsize = 4096 if options.shadows else 0
        self.scene, self.options = scene, options
        self._gl = _gl_context(options)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        self._free = weakref.finalize(self, _freed, self._context, self._gl)
        self._free.atexit = False  # its turn may come after EGL's own end; ours comes before
        atexit.register(self._free)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self.name = _renderer_name()
        self._drawing = mujoco.MjvScene(model, maxgeom=1000)
        self._drawing.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = options.shadows
        self._drawing.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = options.reflections
        self._seen = mujoco.MjvOption()
        self._seen.sitegroup[:] = 0
        self._rectangle = mujoco.MjrRect(0, 0, options.width, options.height)
        self._pixels = np.empty((options.height, options.width, 3), np.uint8)
        self._cameras = {"side": _side_camera(), "wrist": _wrist_camera(model)}

    def draw(self, data: mujoco.MjData, camera: str, out: Frame) -> None:
        """Draw the state in `data` (after `mj_forward`) into `out`, (H, W, 3) uint8, top row first."""
        self._gl.make_current()
        model = self.scene.model
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, self._seen, None, self._cameras[camera], everything, self._drawing)
        mujoco.mjr_render(self._rectangle, self._drawing, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
        out[:] = self._pixels[::-1]

    def frame(self, data: mujoco.MjData, camera: str = "side") -> Frame:
        """A new frame, (H, W, 3) uint8."""
        out = np.empty_like(self._pixels)
        self.draw(data, camera, out)
        return out

    def close(self) -> None:
        """Give the GL context back; done by itself when the renderer is forgotten or the program ends."""
        self._free()

    def __enter__(self) -> "Renderer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _renderer_name() -> str:
    from OpenGL import GL

    return str(GL.glGetString(GL.GL_RENDERER).decode())


def _freed(context: mujoco.MjrContext, gl: Any) -> None:
    gl.make_current()
    context.free()
    gl.free()


def _gl_context(options: RenderOptions) -> Any:
    """A GL context without a screen; MUJOCO_GL may ask for another one than EGL, as everywhere with MuJoCo.

    MuJoCo itself reads that variable once, when first imported, and takes a window where it is not set.
    """
    backend = os.environ.get("MUJOCO_GL") or "egl"
    if backend not in ("egl", "osmesa", "glfw"):
        raise ConfigError(f"MUJOCO_GL is '{backend}'; it must be egl, osmesa or glfw")
    try:
        return importlib.import_module(f"mujoco.{backend}").GLContext(options.width, options.height)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise ConfigError(f"nothing can be rendered with {backend}: {error}; see `xskill info`") from error


def _side_camera() -> mujoco.MjvCamera:
    """The benchmark's view."""
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.distance, camera.azimuth, camera.elevation = 2.2, 70.0, -35.0
    camera.lookat[:] = -0.2, 0.5, 2.0
    return camera


def _wrist_camera(model: mujoco.MjModel) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = model.camera("wrist").id
    return camera
