"""The simulated world of the paper: Franka Kitchen, seen and acted in by different bodies.

Nothing on the main way imports it; it fills the same datasets that other people's videos do.
"""

import os

import gymnasium

os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo reads it once, when first imported; no screen is needed here

ENVIRONMENT = "xskill/Kitchen-v0"

gymnasium.register(ENVIRONMENT, entry_point="xskill.kitchen.env:KitchenEnv")
