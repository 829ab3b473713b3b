"""Augmentation: each part against kornia, and what stays the same within a video."""

import kornia
import pytest
import torch
from torch import Tensor

from xskill.discover.augment import Views, augment, draw_views, recolouring, spread
from xskill.discover.config import AugmentConfig

SIZE = 32
RADIUS = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 3, seed: int = 0) -> Tensor:
    """Random smooth images (N, 3, H, W) from 0.2 to 0.8: nothing here is clipped."""
    coarse = torch.rand(count, 3, 6, 6, generator=generator(seed))
    smooth = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bicubic", align_corners=False)
    return 0.2 + 0.6 * smooth.clamp(0, 1)


def plain(count: int, **changes: float) -> Views:
    """Views (N, 1) that do nothing, but for `changes`."""
    nothing = {"top": 0, "left": 0, "height": 1, "width": 1, "sigma": 0, "brightness": 1, "contrast": 1,
               "saturation": 1, "hue": 0, "gray": 0}  # fmt: skip
    return Views(**{name: torch.full((count,), float(value)) for name, value in (nothing | changes).items()})


def recoloured(images: Tensor, mean: Tensor | None = None, **changes: float) -> Tensor:
    mean = kornia.color.rgb_to_grayscale(images).mean((1, 2, 3)) if mean is None else mean
    colours, shift = recolouring(plain(len(images), **changes), mean)
    return torch.einsum("nij,njhw->nihw", colours, images) + shift[:, None, None, None]


def test_colours_are_changed_as_kornia_does() -> None:
    images = pictures()
    enhance = kornia.enhance
    assert torch.allclose(recoloured(images, brightness=1.2), images * 1.2, atol=1e-6)
    contrast = enhance.adjust_contrast_with_mean_subtraction(images, 1.3)
    assert torch.allclose(recoloured(images, contrast=1.3), contrast, atol=1e-5)
    saturation = enhance.adjust_saturation_with_gray_subtraction(images, 0.6)
    assert torch.allclose(recoloured(images, saturation=0.6), saturation, atol=2e-3)
    gray = kornia.color.rgb_to_grayscale(images).expand(-1, 3, -1, -1)
    assert torch.allclose(recoloured(images, gray=1.0), gray, atol=1e-5)
    # Theirs turns the hue of HSV, ours that of YIQ at constant luma: the same direction.
    theirs, ours = enhance.adjust_hue(images, 2 * torch.pi * 0.03), recoloured(images, hue=0.03)
    alike = torch.nn.functional.cosine_similarity((theirs - images).flatten(1), (ours - images).flatten(1))
    assert alike.min() > 0.5


def test_the_hue_is_turned_by_so_much_and_luma_and_chroma_stay() -> None:
    images = pictures()
    yiq = torch.tensor([(0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    before, after = (torch.einsum("ij,njhw->nihw", yiq, i) for i in (images, recoloured(images, hue=0.1)))
    assert torch.allclose(before[:, 0], after[:, 0], atol=1e-5)
    chroma = [torch.complex(part[:, 1].contiguous(), part[:, 2].contiguous()) for part in (before, after)]
    turn = chroma[1] / chroma[0]
    assert turn.abs().numpy() == pytest.approx(1, abs=1e-3)
    assert turn.angle().numpy() == pytest.approx(-2 * torch.pi * 0.1, abs=1e-3)


def test_gray_stays_gray_whatever_the_hue() -> None:
    gray = torch.full((2, 3, 4, 4), 0.5)
    assert torch.allclose(recoloured(gray, hue=0.2, saturation=1.4), gray, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_the_blur_is_kornias(sigma: float) -> None:
    images = pictures()
    whole = torch.zeros(3), torch.ones(3), torch.full((3,), sigma)
    matrix = spread(*whole, SIZE, RADIUS)
    ours = matrix[:, None] @ images @ matrix[:, None].mT
    theirs = kornia.filters.gaussian_blur2d(images, 2 * RADIUS + 1, (sigma, sigma), border_type="reflect")
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_crop_is_kornias() -> None:
    images = pictures(1)
    top, left, height, width = 4, 6, 20, 16
    ours = []
    for start, share in ((top, height), (left, width)):
        parts = torch.tensor([start / SIZE]), torch.tensor([share / SIZE]), torch.zeros(1)
        ours.append(spread(*parts, SIZE, RADIUS))
    result = ours[0][:, None] @ images @ ours[1][:, None].mT
    cropped = images[:, :, top : top + height, left : left + width]
    theirs = kornia.geometry.transform.resize(cropped, (SIZE, SIZE), align_corners=False)
    inner = slice(2, -2)  # at a crop's border ours still sees the pixel beyond it, theirs repeats the last
    assert torch.allclose(result[..., inner, inner], theirs[..., inner, inner], atol=1e-5)


def test_all_together_is_one_after_the_other() -> None:
    images = pictures(4)
    frames = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)[:, None].expand(-1, 3, -1, -1, -1)
    config = AugmentConfig(jitter=1, grayscale=0.3, blur=1, brightness=0.1, contrast=0.1)
    views = draw_views(4, config, generator())
    result = augment(frames, views, config.blur_sigma[1])
    assert result.shape == (2, 4, 3, SIZE, SIZE, 3)
    for video in range(4):
        for view in range(2):
            one = Views(*(value[video, view][None] for value in views))
            rows = spread(one.top, one.height, one.sigma, SIZE, 5)
            columns = spread(one.left, one.width, one.sigma, SIZE, 5)
            image = frames[video, 0].permute(2, 0, 1)[None] / 255
            mean = (frames[video, 0, ::4, ::4].float().mean((0, 1)) / 255) @ torch.tensor([0.299, 0.587, 0.114])
            colours, shift = recolouring(one, mean[None])
            expected = torch.einsum("nij,njhw->nihw", colours, rows[:, None] @ image @ columns[:, None].mT) + shift
            expected = (2 * expected - 1).clamp(-1, 1)
            for frame in range(3):  # the same in every frame of a video
                assert torch.allclose(result[view, video, frame], expected[0].permute(1, 2, 0), atol=2e-3)


def test_every_frame_may_be_augmented_by_itself() -> None:
    config, frames = AugmentConfig(each_frame=True), (pictures(6) * 255).to(torch.uint8).permute(0, 2, 3, 1)
    views = draw_views(6, config, generator())
    together = augment(frames.unflatten(0, (2, 3)), views, config.blur_sigma[1])
    alone = augment(frames[:, None], views, config.blur_sigma[1])
    assert together.shape == (2, 2, 3, SIZE, SIZE, 3)
    assert torch.equal(together.flatten(1, 2), alone[:, :, 0])
    same = augment(frames[:1, None].expand(2, 3, -1, -1, -1), views, config.blur_sigma[1])
    assert all((one - other).abs().max() > 0.05 for one, other in zip(same[0, 0], same[0, 0].roll(1, 0), strict=True))


def test_views_differ_between_views_and_videos_and_are_seeded() -> None:
    config = AugmentConfig()
    views, again, other = (draw_views(50, config, generator(seed)) for seed in (0, 0, 1))
    for name, first, second, third in zip(Views._fields, views, again, other, strict=True):
        assert torch.equal(first, second), name
        assert not torch.equal(first, third), name
    crops = torch.stack([views.top, views.left, views.height, views.width], -1).flatten(0, 1)
    assert len(crops.unique(dim=0)) == 100
    area = views.height * views.width
    assert area.min() >= 0.7 - 1e-6
    assert area.max() <= 1
    assert (views.top + views.height).max() <= 1 + 1e-6
    assert 0.15 < (views.sigma > 0).float().mean() < 0.45


def test_an_augmentation_that_does_nothing_changes_nothing() -> None:
    frames = (pictures(2) * 255).to(torch.uint8).permute(0, 2, 3, 1)[:, None]
    still = AugmentConfig(crop=(1.0, 1.0), jitter=0, grayscale=0, blur=0)
    result = augment(frames, draw_views(2, still, generator()), 1.5)
    expected = frames / 127.5 - 1
    assert torch.allclose(result[0], expected, atol=1e-5)
    assert torch.allclose(result[1], expected, atol=1e-5)
