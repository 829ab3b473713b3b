"""What a discovery has come to: all measures at all speeds, and the two pictures of the paper's embedding figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.discover.measure import SPEEDS, Encoded, HeldOut, encoded, labels, measures, read_truth
from xskill.engine.folder import to_bytes, without_nan, write_file

MOST = 1500
"""Clips of each embodiment in the embedding picture."""


def look(model: SkillModel, held: Sequence[HeldOut], config: DiscoverConfig, folder: Path) -> dict[str, float]:
    """Measure a trained model on held-out videos; write measures.json and the pictures into `folder`."""
    found = measures(model, held, config, SPEEDS)
    write_file(folder / "measures.json", to_bytes(without_nan(found)))
    bodies = [encoded(model, one, config) for one in held]
    truths = [read_truth(one.bank) for one in held]
    tasks = [
        labels(body, truth) if truth is not None else np.full(len(body.frame), body.name)
        for body, truth in zip(bodies, truths, strict=True)
    ]
    draw_embedding(bodies, tasks, folder / "embedding.png")
    draw_strips(bodies, tasks, config.num_prototypes, folder / "prototypes.png")
    return found


def told(found: Mapping[str, float], names: Sequence[str], config: DiscoverConfig) -> list[str]:
    """The measures in a few sentences; the first name is the robot's."""
    used = ", ".join(f"{found[f'used_{name}']:.0f} by {name}" for name in names)
    shared = f"; used evenly and by all alike: {found['shared_usage']:.0%}"
    lines = [f"prototypes used, of {config.num_prototypes}: {used}{shared if len(names) > 1 else ''}"]
    for name in names[1:]:
        if found.get(f"recall_{name}") is not None:
            lines.append(
                f"{name}: the {names[0]}'s same moment found within 0.5 s for {found[f'recall_{name}']:.1%} of clips "
                f"(median error {found[f'time_error_{name}']:.2f} s)"
            )
        if found.get(f"sub_task_{name}") is not None:
            lines.append(f"{name}: the same sub-task in another video for {found[f'sub_task_{name}']:.1%} of clips")
    return lines


def draw_embedding(bodies: Sequence[Encoded], tasks: Sequence[np.ndarray], path: Path) -> None:
    """t-SNE of all bodies' skills, together and one by one: coloured by sub-task, or by body if unknown."""
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    kept = [np.linspace(0, len(body.frame) - 1, min(MOST, len(body.frame))).astype(int) for body in bodies]
    skills = np.concatenate([body.skills.cpu().numpy()[some] for body, some in zip(bodies, kept, strict=True)])
    task = np.concatenate([names[some] for names, some in zip(tasks, kept, strict=True)])
    owner = np.repeat(np.arange(len(bodies)), [len(some) for some in kept])
    perplexity = min(30.0, (len(skills) - 1) / 3)
    points = TSNE(metric="cosine", init="random", random_state=0, perplexity=perplexity).fit_transform(skills)
    figure = Figure(figsize=(6 * (len(bodies) + 1), 6), layout="constrained")
    colours = {name: f"C{index}" for index, name in enumerate(sorted(set(task) - {""}))} | {"": "lightgray"}
    axes = figure.subplots(1, len(bodies) + 1, sharex=True, sharey=True)
    for index, axis in enumerate(axes):
        shown = np.full(len(task), True) if index == 0 else owner == index - 1
        axis.scatter(*points[shown].T, s=6, c=[colours[name] for name in task[shown]], linewidths=0)
        axis.set_title("all bodies" if index == 0 else bodies[index - 1].name)
        axis.set_xticks([])
        axis.set_yticks([])
    for name, colour in colours.items():
        axes[0].scatter([], [], c=colour, label=name or "after the last")
    axes[0].legend(fontsize="small", loc="best")
    figure.savefig(path, dpi=100)


def draw_strips(bodies: Sequence[Encoded], tasks: Sequence[np.ndarray], prototypes: int, path: Path) -> None:
    """The prototype of every moment of one task, done by each body: the same colour is the same prototype.

    Where no two bodies have done the same, videos of each.
    """
    from matplotlib.figure import Figure

    shared = [name for name in bodies[0].videos if all(name in body.videos for body in bodies)][:3]
    shown = [(video, body) for video in shared for body in bodies]
    shown = shown or [(video, body) for body in bodies for video in body.videos[:3]]
    figure = Figure(figsize=(10, 0.6 + 0.7 * len(shown)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(len(shown), 1))
    colours = prototype_colours(prototypes)
    for row, (video, body) in enumerate(shown):
        mine = (body.video == body.videos.index(video)).cpu().numpy()
        axes[row].imshow(colours[body.prototype.cpu().numpy()[mine]][None], aspect="auto", interpolation="nearest")
        changes = np.flatnonzero(np.diff(np.unique(tasks[bodies.index(body)][mine], return_inverse=True)[1]))
        for change in changes:
            axes[row].axvline(change + 0.5, color="white", linewidth=2)
        axes[row].set_yticks([0], [body.name])
        axes[row].set_xticks([])
        if body is bodies[0] or not shared:
            axes[row].set_title(video, fontsize="small", loc="left")
    figure.savefig(path, dpi=100)


def prototype_colours(count: int) -> np.ndarray:
    """A colour for each prototype, (count, 4), always the same; neighbours in number are not neighbours in colour."""
    from matplotlib import colormaps

    colours: np.ndarray = colormaps["nipy_spectral"](np.random.default_rng(0).permutation(count) / count)
    return colours
