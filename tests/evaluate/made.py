"""Models and trials for tests of evaluation."""

import numpy as np
import torch

from tests.discover.made import TINY as DISCOVER
from xskill.discover.encoder import SkillModel
from xskill.evaluate.protocol import Setting, Trial
from xskill.kitchen.env import HOME
from xskill.kitchen.tasks import TASKS
from xskill.presets import PRESETS
from xskill.transfer.model import Model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range

TRANSFER = PRESETS["debug"][1].transfer
SIZE = 16


def model() -> Model:
    """A model with random weights whose robot fidgets around where demonstrations begin."""
    torch.manual_seed(0)
    around = Range(tuple(HOME[:9]), (0.1,) * 9)
    body, size = Body(("side",), (SIZE, SIZE), around, around, DISCOVER.encoder.width), (SIZE, SIZE)
    tokens = TRANSFER.aligner.tokens
    network = TransferModel(TRANSFER, body, tokens, 1.5)
    return Model(DISCOVER, TRANSFER, body, tokens, 1.5, 12.5, SkillModel(DISCOVER, size).eval(), network.eval())


def trial(
    *asked: str, condition: int = 0, done: tuple[str, ...] = (), undo: bool = False, setting: str = "same x1"
) -> Trial:
    """An episode that begins with some sub-tasks done."""
    start = np.array(HOME)
    for name in done:
        start[list(TASKS[name].qpos)] = TASKS[name].goal
    return Trial("test", Setting(setting, "franka", undo=undo), condition, "shown", asked, start)
