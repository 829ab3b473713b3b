"""The U-Net: shapes, what depends on what, and what does not."""

import pytest
import torch
from torch import nn

from xskill.transfer.unet import Convolution, Doubling, Sinusoids, UNet1D


def network(channels: tuple[int, ...] = (16, 32), actions: int = 3, condition: int = 5) -> UNet1D:
    torch.manual_seed(0)
    return UNet1D(actions, condition, channels, 3, 16).eval()


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(5, 1, 2), (3, 2, 1), (1, 1, 0), (9, 1, 4)])
def test_a_convolution_by_a_matrix_product_is_the_usual_one(kernel: int, stride: int, padding: int) -> None:
    chunks, ours = torch.randn(3, 6, 16, dtype=torch.float64), Convolution(6, 4, kernel, stride, padding).double()
    torch.testing.assert_close(ours(chunks), nn.Conv1d.forward(ours, chunks))


def test_doubling_by_a_matrix_product_is_the_usual_transposed_convolution() -> None:
    chunks, ours = torch.randn(3, 6, 8, dtype=torch.float64), Doubling(6).double()
    assert ours(chunks).shape == (3, 6, 16)
    torch.testing.assert_close(ours(chunks), nn.ConvTranspose1d.forward(ours, chunks))


@pytest.mark.parametrize("channels", [(8,), (16, 32), (8, 16, 24)])
def test_the_chunk_keeps_its_shape(channels: tuple[int, ...]) -> None:
    out = network(channels)(torch.randn(4, 16, 3), torch.tensor([0, 1, 50, 99]), torch.randn(4, 5))
    assert out.shape == (4, 16, 3)


def test_permuting_the_batch_permutes_the_result_and_permuting_time_does_not() -> None:
    unet = network()
    noisy, step, told = torch.randn(4, 16, 3), torch.tensor([3, 9, 27, 81]), torch.randn(4, 5)
    out, order = unet(noisy, step, told), torch.tensor([2, 0, 3, 1])
    assert torch.allclose(unet(noisy[order], step[order], told[order]), out[order], atol=1e-5)
    turned = torch.arange(15, -1, -1)
    assert not torch.allclose(unet(noisy[:, turned], step, told), out[:, turned], atol=1e-2)


def test_step_and_condition_matter() -> None:
    unet = network()
    noisy, step, told = torch.randn(1, 16, 3), torch.tensor([3]), torch.randn(1, 5)
    out = unet(noisy, step, told)
    assert not torch.allclose(out, unet(noisy, step + 40, told), atol=1e-3)
    assert not torch.allclose(out, unet(noisy, step, told + 1), atol=1e-3)


def test_sinusoids_tell_every_step_apart() -> None:
    codes = Sinusoids(32)(torch.arange(100))
    assert codes.shape == (100, 32)
    assert (torch.cdist(codes, codes) + torch.eye(100)).min() > 0.1
