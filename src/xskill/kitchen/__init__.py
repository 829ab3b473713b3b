"""The simulated world of the paper: Franka Kitchen, seen and acted in by different bodies.

Nothing on the main way imports it; it fills the same datasets that other people's videos do.
"""

import gymnasium

ENVIRONMENT = "xskill/Kitchen-v0"

gymnasium.register(ENVIRONMENT, entry_point="xskill.kitchen.env:KitchenEnv")
