"""What decides a transfer: the policy, the aligner, and how both are trained."""

from dataclasses import dataclass, field
from typing import Literal

from xskill.engine.config import LoopConfig, require

Solver = Literal["ddpm", "ddim", "dpm-solver"]
Vision = Literal["resnet18", "small", "tiny"]


@dataclass(frozen=True)
class PolicyConfig:
    """The skill-conditioned policy: observation window and skill in, a chunk of actions out."""

    kind: Literal["diffusion", "cloning"] = "diffusion"
    """Chi et al.'s diffusion policy, or plain regression of the chunk."""
    vision: Vision = "resnet18"
    """What looks at each image."""
    vision_width: int = 512
    """Size of an image's feature, where `small` or `tiny` looks; a ResNet-18's is 512."""
    told: Literal["skill", "goal"] = "skill"
    """What it is told to do: a skill; or, as a goal-conditioned policy, an image to come, of which an encoder that is
    trained along with it makes what the skill would be."""
    ahead: int = 0
    """Frames from now at which the skill it is told, or the goal, is shown."""
    blind: bool = False
    """Whether the skill is kept from it, to see what the prompt is worth."""
    observe: int = 2
    """Latest observations the policy sees."""
    predict: int = 16
    """Actions in a chunk; the first belongs to the oldest observation."""
    execute: int = 8
    """Actions of a chunk that are carried out, from the latest observation on."""
    condition_width: int = 0
    """What is seen and the skill are squeezed to this many numbers before they condition; 0 leaves them as they are."""
    channels: tuple[int, ...] = (256, 512, 1024)
    """Channels of the U-Net's levels."""
    kernel: int = 5
    """Kernel size of its convolutions."""
    guess: Literal["noise", "actions"] = "noise"
    """What the U-Net makes of noisy actions: their noise, as the paper has it, or the actions without it."""
    time_width: int = 256
    """Size of the embedding of the denoising step."""
    train_steps: int = 100
    """Noise levels in training."""
    solver: Solver = "ddpm"
    """How actions are denoised."""
    solver_steps: int = 60
    """Denoising steps of one chunk."""

    def __post_init__(self) -> None:
        for name in ("vision_width", "observe", "execute", "time_width", "train_steps", "solver_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.kernel >= 1 and self.kernel % 2 == 1, "kernel", self.kernel, "odd")
        require(len(self.channels) >= 1 and all(c % 8 == 0 for c in self.channels), "channels", self.channels, "eights")
        halvings = 2 ** (len(self.channels) - 1)
        require(self.predict % halvings == 0, "predict", self.predict, f"a multiple of {halvings}, for the U-Net")
        require(
            self.observe - 1 + self.execute <= self.predict,
            "execute", self.execute, f"at most {self.predict - self.observe + 1}, what is predicted from now on",
        )  # fmt: skip
        least = 1 if self.told == "goal" else 0
        require(self.ahead >= least, "ahead", self.ahead, f"at least {least}" + ": a goal lies ahead" * least)
        require(
            not (self.blind and self.told == "goal"),
            "blind",
            True,
            "False where goals are told: nothing would see them",
        )
        require(
            self.solver != "ddim" or self.train_steps % self.solver_steps == 0,
            "solver_steps", self.solver_steps, f"a divisor of train_steps, {self.train_steps}, for ddim",
        )  # fmt: skip
        require(self.solver_steps <= self.train_steps, "solver_steps", self.solver_steps, "at most train_steps")


@dataclass(frozen=True)
class AlignerConfig:
    """What finds the robot's place in its plan: the plan and the scene in, the skill to execute now out."""

    kind: Literal["transformer", "tracker"] = "transformer"
    """The paper's Skill Alignment Transformer, or a filter that keeps track of where in the plan the robot is."""
    tokens: int = 0
    """Skills in a plan, N_SAT; 0 takes half the robot's mean episode length."""
    vision: Vision = "resnet18"
    """What looks at the scene."""
    vision_width: int = 512
    """Size of the scene's feature, where `small` or `tiny` looks."""
    layers: int = 16
    """Transformer layers."""
    heads: int = 4
    """Attention heads in each."""
    feedforward: int = 512
    """Width of their feed-forward networks; of a tracker's comparison of scene and moment."""
    dropout: float = 0.0
    """Transformer: how often a number is left out in training."""
    neighbours: int = 4
    """Tracker: skills on either side of a plan's moment that it is told apart by."""
    history: bool = False
    """Tracker: whether a moment is told apart by all that the plan shows before it, too, so that it does not fit where
    some of that is not done."""
    trust: float = 1.0
    """Tracker: weight of what is seen now against what was believed; with less, what was undone is hardly noticed."""
    rescale: bool = False
    """Tracker: whether a prompt that shows less than training videos do, fewer sub-tasks, is read on the scale on which
    its skills are most like prototypes; otherwise it looks slower than all that was learned."""
    advance: float = 2.0
    """Tracker: furthest that a robot may move on along the plan at once, as a multiple of its usual pace."""
    step_back: float = 0.01
    """Tracker: how often something done is undone, so that the robot is further back than it was."""
    leap: float = 0.0001
    """Tracker: how often it may be anywhere at all."""

    def __post_init__(self) -> None:
        for name in ("trust", "advance"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")
        require(self.neighbours >= 0, "neighbours", self.neighbours, "at least 0")
        require(0 <= self.step_back < 0.5, "step_back", self.step_back, "in [0, 0.5)")
        require(0 < self.leap < 0.5, "leap", self.leap, "in (0, 0.5): a belief of nothing anywhere could never recover")
        require(self.tokens >= 0, "tokens", self.tokens, "at least 0")
        for name in ("vision_width", "layers", "heads", "feedforward"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")


@dataclass(frozen=True)
class TransferConfig:
    """Training of policy and aligner together (paper, Algorithm 2), and what may help beyond it."""

    batch_size: int = 128
    """Moments of robot episodes in a global batch."""
    mask_padding: bool = False
    """Whether actions past the end of an episode, which repeat the last one, are left out of the loss."""
    skill_noise: float = 0.0
    """Noise on the skill the policy is given, as a share of a skill's length."""
    state_noise: float = 0.0
    """Noise on the joints, in units of their normalised range of -1 to 1."""
    shift: int = 0
    """Images are shifted by up to this many pixels."""
    plan_noise: float = 0.0
    """Noise on the plan's skills, as a share of a skill's length."""
    plan_drop: float = 0.0
    """How often a skill of the plan is hidden from the aligner."""
    plan_warp: float = 0.0
    """How far the plan's time is warped: 0 not at all, 1 up to twice as fast in places."""
    cross: float = 0.0
    """How often a moment is told as a demonstrator shows it: the skill, and the plan, are those of a video in which
    another body does the same, found by what their skills have in common."""
    plan_splice: float = 0.0
    """How often what comes later in the plan is taken from another episode, and how often what came before is."""
    undo: float = 0.0
    """How often the aligner is shown something done as not done, and has to go back to it. What is done is found in the
    videos, as a lasting change of the picture: the first camera must stand still."""
    keep_policy: bool = False
    """Whether the policy of the model that is gone on from stays as it is, and only an aligner is learned."""
    aligner_anew: bool = True
    """Whether an aligner beside a policy that is kept is learned anew; or else the model's own is trained on."""
    keep_eyes: bool = False
    """Whether what the policy looks at images with stays as it is in the model that is gone on from. Steps are cheaper
    then, and what it has learned to see is not lost to small batches: for training on without a GPU."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    aligner: AlignerConfig = field(default_factory=AlignerConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.shift >= 0, "shift", self.shift, "at least 0")
        for name in ("skill_noise", "state_noise", "plan_noise"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(
            not (self.cross and self.policy.told == "goal"), "cross", self.cross, "0 where goals are told, not skills"
        )
        told_goals = "False where goals are told: no aligner can tell them"
        require(not (self.keep_policy and self.policy.told == "goal"), "keep_policy", True, told_goals)
        for name in ("plan_drop", "plan_warp", "plan_splice", "cross", "undo"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
