"""What looks at images."""

import pytest
import torch
import torch.nn.functional as F

from xskill.transfer.vision import Norm, looker


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_normalising_keeps_the_precision_of_images(device: str) -> None:
    """On a CPU torch does so by itself."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    norm, images = Norm(2, 8).to(device), torch.randn(3, 8, 5, 5, device=device)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    exact = F.group_norm(images, 2, norm.weight, norm.bias)
    assert torch.equal(norm(images), exact)
    with torch.autocast(device, torch.bfloat16):
        narrow = norm(images.bfloat16())
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(narrow.float(), exact, atol=0.05)


@pytest.mark.parametrize("kind", ["small", "resnet18"])
def test_mixed_precision_sees_nearly_the_same(kind: str) -> None:
    torch.manual_seed(0)
    network, width = looker(kind, 16, (48, 48))
    images = torch.rand(4, 48, 48, 3) * 2 - 1
    exact = network(images)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = network(images)
    assert exact.shape == narrow.shape == (4, width)
    assert F.cosine_similarity(exact, narrow.float()).min() > 0.99
    narrow.float().square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
