"""Frame banks as a source: what was rendered can be given to others as a dataset."""

from functools import partial

from xskill.data.frames import FrameBank
from xskill.data.recording import Recording, Source
from xskill.data.sources import resized


def read_bank(bank: FrameBank) -> Source:
    """Every episode of a bank, with what its robot did."""
    episodes = bank.episodes
    frames = {camera: bank.videos(camera) for camera in bank.cameras}
    recordings = []
    for index, name in enumerate(episodes.names):
        rows = slice(episodes.starts[index], episodes.starts[index] + episodes.lengths[index])
        shots = {camera: partial(resized, videos[name]) for camera, videos in frames.items()}
        states, actions = (array if array is None else array[rows] for array in (episodes.states, episodes.actions))
        recordings.append(Recording(name, shots, states, actions))
    sizes = dict.fromkeys(bank.cameras, bank.size)
    return Source(recordings, episodes.fps, sizes, {"kind": "bank", "key": bank.path.name})
