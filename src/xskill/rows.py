"""What the tables are made of: for each row a training, and how it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xskill.presets import PRESETS


@dataclass(frozen=True)
class Row:
    """A row of a table: a training, how it differs from the preset, and how its plans are read."""

    name: str
    training: str = "xskill"
    """Names its folder; rows may share a training."""
    words: tuple[str, ...] = ()
    """Options that set it apart."""
    method: str = "xskill"
    preset: str = ""
    """What it starts from, if not from what the others do."""
    prototypes: int = 0
    """How many, if they are what a table is about."""

    @property
    def keeps_policy(self) -> bool:
        """Whether it differs from the plain training in its aligner alone, and has everything else from there."""
        return _KEPT in self.words

    def resolved(self, preset: str) -> "Row":
        """The row with its number of prototypes among its words, unless the preset has as many."""
        if self.prototypes in (0, PRESETS[self.preset or preset][1].discover.num_prototypes):
            return self
        training = f"k{self.prototypes}" + f"-{self.training}" * (self.training != OURS.training)
        words = ("--discover.num-prototypes", str(self.prototypes), *self.words)
        return replace(self, training=training, words=words, prototypes=0)


def _words(*told: str) -> tuple[str, ...]:
    """Options of transfer, each said as in `plan-noise 0.5`."""
    return tuple(word for one in told for word in f"--transfer.{one}".split())


OURS = Row("XSkill")
_TOLD = Row("XSkill, told what is done", method="told")
_EXPERT = Row("scripted expert, told the order", method="scripted")
_CLOCK = Row("plan read by the clock", method="clock")
_BLIND = Row("blind to its prompt", "blind", ("--transfer.policy.blind",))
_ALONE = Row("told the robot's own skills only", "alone", ("--transfer.cross", "0"))
_LOSSES = tuple(  # counterparts are found by skills, and where these are no good they would mislead
    Row(f"XSkill without {name} loss", f"no-{word}-loss", (f"--discover.{word}-weight", "0", *_ALONE.words))
    for name, word in (("prototype", "prototype"), ("TC", "time"))
)
_UNDONE = Row("with undone scenes", "undone-scenes", ("--transfer.undo", "0.25"))
_SETBACKS = Row("with undone scenes and setbacks", "setbacks", (*_UNDONE.words, "--data.setbacks", "300"))
_KEPT = "--transfer.keep-policy"
_SAT = ("kind transformer", "vision resnet18", "layers 16", "feedforward 512", "dropout 0.1")
_PAPERS = Row("a transformer as aligner", "transformer", (_KEPT, *_words(*(f"aligner.{told}" for told in _SAT))))
_FRAMES = Row("XSkill, raw frames", "frames", ("--discover.time-scale", "frames"))
_PAPER = Row("paper-kitchen", "paper", preset="paper-kitchen")
_NOISE = _words("skill-noise 1", "plan-noise 0.5", "plan-drop 0.1", "plan-warp 1")
_HANDS = Row("XSkill, having watched free hands", "hands", ("--data.demonstrators", "hand", "hands"))
_AHEAD = (*_ALONE.words, "--transfer.policy.ahead", "16")
_TCN = ("--discover.clip-length", "1", "--discover.prototype-weight", "0")


def _level(level: int) -> Row:
    return Row(f"XSkill, Level {level}", f"level{level}", ("--data.level", str(level)))


def _prototypes(count: int, like: Row = OURS) -> Row:
    return replace(like, name=like.name.replace("XSkill", f"K={count}"), prototypes=count)


def _unseen(*order: str, like: Row | None = None) -> Row:
    name, training, words = f"unseen: {', '.join(order)}", "unseen-" + "-".join(order), ("--data.unseen", *order)
    if like:
        name, training, words = f"{name}, {like.name}", f"{like.training}-{training}", (*like.words, *words)
    return Row(name, training, words)


_OTHERS = (
    ("microwave", "kettle", "light", "hinge"),
    ("kettle", "bottom-burner", "light", "slide"),
    ("microwave", "kettle", "bottom-burner", "slide"),
)
"""Orders, each shown by several people, that are left out instead of the paper's to make choices by."""


def _faster(speed: str) -> Row:
    return Row(f"XSkill, all videos {speed} times as fast", f"speed{speed}", ("--data.speed", speed))


def _paper(name: str, *words: str) -> Row:
    return replace(_PAPER, name=f"{_PAPER.name}, {name}", training=f"paper-{name.replace(' ', '-')}", words=words)


def _aligner(name: str, *words: str) -> Row:
    return Row(name, f"aligner-{name.replace(' ', '-')}", (_KEPT, *_words(*words)))


def _without(name: str, *words: str) -> Row:
    return Row(f"without {name}", f"no-{name.replace(' ', '-')}", (f"--transfer.{words[0]}", *words[1:]))


SWEEPS: Mapping[str, tuple[str, tuple[Row, ...]]] = {
    "table1": (
        "the paper's main table: the method, ways to read the plan, ablations, what the prompt is worth",
        (
            OURS,
            _CLOCK,
            Row("XSkill, NN-compose", method="nearest"),
            _TOLD,
            _PAPERS,
            *_LOSSES,
            _ALONE,
            Row("GCD policy", "gcd", ("--transfer.policy.told", "goal", *_AHEAD), "gcd"),
            Row("GCD policy with TCN", "gcd-tcn", (*_TCN, *_AHEAD), "gcd"),
            _BLIND,
            Row("the prompt's own actions replayed", method="replay"),
            _EXPERT,
        ),
    ),
    "headline": (
        "the method, also with setbacks, fewer transitions, a red sphere, scripted demonstrations; the paper's sizes",
        (
            OURS,
            replace(_SETBACKS, name="XSkill, with undone scenes and setbacks"),
            _level(1),
            Row("XSkill, red sphere", "red", ("--data.demonstrators", "red-sphere")),
            Row("XSkill, from scripted demonstrations", "scripted", ("--data.demos", "scripted")),
            _PAPER,
            replace(_level(1), name="paper-kitchen, Level 1", training="paper-level1", preset=_PAPER.preset),
        ),
    ),
    "paper": (
        "the paper's own sizes, and what may help them to follow another body",
        (
            _PAPER,
            replace(_PAPER, name=f"{_PAPER.name}, NN-compose", method="nearest"),
            replace(_PAPER, name=f"{_PAPER.name}, read by the clock", method="clock"),
            _paper("bodies paired", "--discover.paired"),
            _paper("frames at random", "--discover.sampling", "random"),
            _paper("videos augmented as a whole", "--discover.augment.no-each-frame"),
            _paper("skills on the scale of the video", "--discover.time-scale", "video"),
            _paper("noise on skills and plans", *_NOISE),
            _paper("counterparts", "--transfer.cross", "0.5"),
        ),
    ),
    "speeds": (
        "what speed costs: training videos as fast as prompts, as in the paper; its time scale, raw frames",
        (
            _faster("1.3"),
            _faster("1.5"),
            _FRAMES,
            replace(_FRAMES, name=f"{_FRAMES.name}, NN-compose", method="nearest"),
        ),
    ),
    "validation": (
        "other orders than the paper's left out, one at a time: what choices are made by",
        tuple(_unseen(*order, like=like) for like in (None, _SETBACKS) for order in _OTHERS),
    ),
    "losses": ("with and without each loss of discovery", (OURS, _ALONE, *_LOSSES)),
    "prototypes": ("K = 32, 128, 256, 512", tuple(_prototypes(count) for count in (32, 128, 256, 512))),
    "levels": (
        "K = 128, 256, 512 with fewer and fewer of the task's transitions seen",
        tuple(_prototypes(count, _level(level)) for level in (1, 2) for count in (128, 256, 512)),
    ),
    "fields": (
        "each thing that `kitchen` does in transfer beyond the paper, left out by itself; and what it could do besides",
        (
            OURS,
            replace(_ALONE, name="without counterparts"),
            _without("the guess of actions", "policy.guess", "noise"),
            _without("noise on skills", "skill-noise", "0"),
            _without("noise on joints", "state-noise", "0"),
            _without("shifted images", "shift", "0"),
            _without("noise on plans", "plan-noise", "0"),
            _without("hidden tokens", "plan-drop", "0"),
            _without("masked padding", "no-mask-padding"),
            _SETBACKS,
            Row("frames augmented each by itself", "each-frame", ("--discover.augment.each-frame",)),
        ),
    ),
    "aligners": (
        "what finds the place in the plan, and what it is shown in training; the policy is the same for all",
        (
            OURS,
            _aligner("learned again"),
            _PAPERS,
            _aligner("a small transformer", "aligner.kind transformer"),
            _aligner("without counterparts", "cross 0"),
            _aligner("without noise on plans", "plan-noise 0"),
            _aligner("without hidden tokens", "plan-drop 0"),
            _aligner("without warped plans", "plan-warp 0"),
            _aligner("with spliced plans", "plan-splice 0.25"),
            _aligner("with undone scenes", "undo 0.25"),
            _aligner("with histories", "aligner.history"),
            _CLOCK,
        ),
    ),
    "perturb": (
        "is what was undone done again, by itself, told what is done, shown how in training; by the script",
        (OURS, _TOLD, _UNDONE, _SETBACKS, replace(_SETBACKS, name=f"{_SETBACKS.name}, told", method="told"), _EXPERT),
    ),
    "mismatch": ("demonstrators that move differently, never watched before, or watched", (OURS, _HANDS)),
    "orders": ("orders that no demonstration has, shown by hands never watched before, or watched", (OURS, _HANDS)),
    "pairs": ("what a prompt of two sub-tasks is worth, for models that a laptop trains", (OURS, _CLOCK, _BLIND)),
}
"""Name -> what it tells, and its rows. They are scored on the suite of that name, or else on table1."""
PLAIN: Mapping[str, str] = {row.preset: row.training for row in (OURS, _PAPER)}
"""A preset, '' for what most rows start from -> the training that is just that, whose skills others may borrow."""
