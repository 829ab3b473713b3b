"""What decides a discovery: sizes of the encoder, the two losses, the augmentation."""

from dataclasses import dataclass, field
from typing import Literal

from xskill.engine.config import LoopConfig, require

TimeScale = Literal["video", "frames"]
Sampling = Literal["even", "random"]


@dataclass(frozen=True)
class EncoderConfig:
    """The temporal skill encoder: a CNN over every frame, a transformer over every clip."""

    channels: tuple[int, int, int] = (32, 64, 64)
    """Channels of the CNN's three layers."""
    width: int = 512
    """Size of a frame's feature, of the transformer's tokens, and of a skill."""
    layers: int = 8
    """Transformer layers."""
    heads: int = 4
    """Attention heads in each."""
    feedforward: int = 512
    """Width of the transformer's feed-forward networks."""
    dropout: float = 0.0
    """How often a number in the transformer is left out in training."""

    def __post_init__(self) -> None:
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")
        require(min(self.channels) >= 1, "channels", self.channels, "at least 1 each")
        require(self.layers >= 1, "layers", self.layers, "at least 1")
        require(self.heads >= 1 and self.width % self.heads == 0, "width", self.width, "a multiple of the heads")
        require(self.feedforward >= 1, "feedforward", self.feedforward, "at least 1")


@dataclass(frozen=True)
class AugmentConfig:
    """How the two views of a video are made."""

    each_frame: bool = False
    """Whether it is drawn anew for every frame; else once for each video and view."""
    crop: tuple[float, float] = (0.7, 1.0)
    """Smallest and largest share of the image's area that a crop keeps, resized to the whole."""
    jitter: float = 0.8
    """How often colours are changed."""
    brightness: float = 0.2
    """Largest change of brightness; contrast and saturation likewise."""
    contrast: float = 0.2
    saturation: float = 0.2
    hue: float = 0.05
    """Largest turn of the hue, as a share of the colour circle."""
    grayscale: float = 0.1
    """How often all colour is taken away."""
    blur: float = 0.3
    """How often a view is blurred."""
    blur_sigma: tuple[float, float] = (0.1, 1.5)
    """Smallest and largest standard deviation of the blur, in pixels."""

    def __post_init__(self) -> None:
        require(0 < self.crop[0] <= self.crop[1] <= 1, "crop", self.crop, "two rising shares in (0, 1]")
        for name in ("jitter", "grayscale", "blur", "brightness", "contrast", "saturation"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
        require(0 <= self.hue <= 0.5, "hue", self.hue, "in [0, 0.5]")
        require(0 < self.blur_sigma[0] <= self.blur_sigma[1], "blur_sigma", self.blur_sigma, "rising, above 0")


@dataclass(frozen=True)
class DiscoverConfig:
    """Discovery of skills: the paper's section "Discover", with its symbols' names in `docs/paper.md`."""

    clip_length: int = 8
    """Frames in a clip."""
    frames_per_video: int = 100
    """Frames sampled from each video; a clip begins at each."""
    sampling: Sampling = "even"
    """How they are sampled: evenly, or at random, anew in every step, in the order in which they are shown."""
    time_scale: TimeScale = "video"
    """Frames of a clip when videos are labelled: as far apart as in training, or the video's own neighbours."""
    videos: int = 16
    """Videos of each embodiment in a step."""
    alternate: bool = False
    """Whether embodiments take turns, a step for each, as in the paper; or every step has videos of all of them."""
    paired: bool = False
    """Whether all embodiments show the same demonstrations in a step, or in a turn of each, as in the paper's own code.
    Nobody's videos are paired; this shows what it would be worth."""
    num_prototypes: int = 128
    """Prototypes shared by all embodiments."""
    keep: Literal["aligned", "newest"] = "aligned"
    """Which weights are kept: of all checkpoints those whose prototypes the bodies share most, or the newest."""
    frozen_steps: int = 3
    """Steps before the prototypes begin to move."""
    temperature: float = 0.1
    """Temperature of the predicted assignment."""
    sinkhorn_epsilon: float = 0.03
    """Entropy of the target assignment."""
    sinkhorn_iterations: int = 3
    """Rounds of normalising rows and columns for the target assignment."""
    prototype_weight: float = 0.5
    """Weight of the swapped prediction of assignments; 0 leaves it out."""
    time_weight: float = 1.0
    """Weight of the time-contrastive loss; 0 leaves it out."""
    time_temperature: float = 0.1
    """Temperature of the time-contrastive loss."""
    positive_window: int = 4
    """A clip's positive begins at most this many clips away."""
    negative_window: int = 12
    """A clip's negatives begin more than this many clips away."""
    negatives: int = 16
    """Negatives for each clip."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        for name in ("clip_length", "videos", "sinkhorn_iterations", "positive_window", "negatives"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.num_prototypes >= 2, "num_prototypes", self.num_prototypes, "at least 2")
        for name in ("temperature", "sinkhorn_epsilon", "time_temperature"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("prototype_weight", "time_weight", "frozen_steps"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(self.prototype_weight + self.time_weight > 0, "prototype_weight", 0, "above 0 where time_weight is not")
        require(
            self.negative_window >= self.positive_window,
            "negative_window", self.negative_window, f"at least positive_window, {self.positive_window}",
        )  # fmt: skip
        require(
            self.frames_per_video > 2 * self.negative_window + 1,
            "frames_per_video", self.frames_per_video,
            f"above {2 * self.negative_window + 1}, twice the negative_window and one: every clip needs negatives",
        )  # fmt: skip
        require(
            self.frames_per_video >= self.clip_length,
            "frames_per_video", self.frames_per_video, f"at least clip_length, {self.clip_length}",
        )  # fmt: skip
