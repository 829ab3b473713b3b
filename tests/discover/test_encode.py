"""The encoder and what it makes of videos: each frame once, pieces equal the whole, any length and size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.discover.made import SIZE, TINY, bank, video
from xskill.data.episodes import uniform_frames
from xskill.discover import encode
from xskill.discover.config import EncoderConfig
from xskill.discover.encode import clip_frames, encode_frames, encode_video
from xskill.discover.encoder import SkillModel, Strided, as_input, in_blocks
from xskill.errors import DataError

CPU = torch.device("cpu")


def model(seed: int = 0) -> SkillModel:
    torch.manual_seed(seed)
    return SkillModel(TINY, (SIZE, SIZE)).eval()


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(8, 4, 2), (5, 2, 2), (7, 4, 3), (7, 2, 3), (3, 3, 0)])
@pytest.mark.parametrize("size", [(112, 112), (48, 64), (17, 31)])
def test_a_convolution_over_blocks_is_the_usual_one(
    kernel: int, stride: int, padding: int, size: tuple[int, int]
) -> None:
    images, usual = torch.randn(2, 3, *size).double(), Strided(3, 6, kernel, stride, padding).double()
    blocks, weight, (height, width) = in_blocks(images, usual.weight, stride, padding)
    assert blocks.shape[1] % 8 == 0
    torch.testing.assert_close(F.conv2d(blocks, weight, usual.bias)[:, :, :height, :width], usual(images))


def test_a_clip_begins_at_every_frame_on_the_time_scale_of_training() -> None:
    length, samples = 34, TINY.frames_per_video  # three frames from sample to sample
    clips = clip_frames(length, TINY)
    assert clips.shape == (length, TINY.clip_length)
    grid = uniform_frames(np.array([0]), np.array([length]), samples)[0]
    for sample in range(samples):
        expected = grid[np.minimum(np.arange(sample, sample + TINY.clip_length), samples - 1)]
        assert clips[grid[sample]].tolist() == expected.tolist()


def test_a_video_of_less_is_read_with_frames_further_apart() -> None:
    length = TINY.frames_per_video
    assert clip_frames(length, TINY, shorter=2.0)[0].tolist() == [0, 2, 4, 6]
    assert torch.equal(clip_frames(length, TINY, shorter=1.0), clip_frames(length, TINY))


def test_on_the_scale_of_frames_a_clip_is_the_next_ones() -> None:
    config = replace(TINY, time_scale="frames")
    assert clip_frames(6, config).tolist()[:4] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 5]]
    assert clip_frames(20, config, rate=2.0).tolist()[0] == [0, 2, 4, 6]


@pytest.mark.parametrize("length", [1, 2, 7, 200])
def test_videos_of_any_length_have_a_skill_for_every_frame(length: int) -> None:
    frames = video("robot", "a", length)
    skills = encode_video(model(), frames, TINY)
    assert skills.shape == (length, TINY.encoder.width)
    assert torch.isfinite(skills).all()


def test_pieces_equal_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = video("robot", "a", 50)
    whole = encode_video(model(), frames, TINY)
    monkeypatch.setattr(encode, "PIECE", 7)
    assert torch.allclose(encode_video(model(), frames, TINY), whole, atol=1e-5)


def test_a_bank_and_its_videos_are_encoded_alike(tmp_path: Path) -> None:
    made = bank(tmp_path, "robot")
    starts, lengths = made.episodes.starts, made.episodes.lengths
    videos = [torch.arange(s, s + n) for s, n in zip(starts[:3], lengths[:3], strict=True)]
    together = encode_frames(model(), made.on(CPU, "side"), videos, TINY)
    alone = [encode_video(model(), video("robot", n, k), TINY) for n, k in zip("abc", lengths[:3], strict=True)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_training_and_use_see_the_same_clips() -> None:
    frames = torch.from_numpy(video("robot", "a", TINY.frames_per_video))
    network = model()
    in_training = network(as_input(frames)[None])[0]
    in_use = network.prototypes(encode_video(network, frames.numpy(), TINY))
    assert torch.allclose(in_training, in_use, atol=1e-5)


def test_another_size_is_resized_and_a_uniformly_faster_video_has_the_same_skills() -> None:
    frames = video("robot", "a", 34)
    large = frames.repeat(3, axis=1).repeat(3, axis=2)
    network = model()
    plain, resized = (encode_video(network, f, TINY) for f in (frames, large))
    assert torch.nn.functional.cosine_similarity(plain, resized).min() > 0.95
    twice = frames.repeat(2, axis=0)  # half as fast
    slow = encode_video(network, twice, TINY)[::2]
    assert torch.nn.functional.cosine_similarity(plain, slow).min() > 0.9


def test_each_frame_passes_the_cnn_once() -> None:
    network = model()
    seen = []
    network.encoder.cnn.register_forward_hook(lambda _, args, __: seen.append(len(args[0])))
    encode_video(network, video("robot", "a", 50), TINY)
    network(torch.zeros(2, TINY.frames_per_video, SIZE, SIZE, 3))
    assert seen == [50, 2 * TINY.frames_per_video]


def test_sizes_follow_from_the_config_and_the_image() -> None:
    config = replace(TINY, encoder=EncoderConfig(channels=(4, 6, 8), width=24, layers=2, heads=3))
    scores = SkillModel(config, (20, 36))(torch.zeros(1, 12, 20, 36, 3))
    assert scores.shape == (1, 12, TINY.num_prototypes)


def test_what_is_no_video_is_refused() -> None:
    for frames, answer in [
        (np.zeros((0, 8, 8, 3), np.uint8), "without frames"),
        (np.zeros((3, 8, 8), np.uint8), r"frames are \(8, 8\) uint8"),
        (np.zeros((3, 8, 8, 3), np.float32), "float32"),
    ]:
        with pytest.raises(DataError, match=answer):
            encode_video(model(), frames, TINY)
