"""Sums of x·xᵀ: which inputs are counted, and which layers share them."""

import torch
from torch import Tensor, nn

from golf.artifact.quant.hessians import InputHessians, observed


class Three(nn.Module):
    """Two layers that read one tensor, and a third that reads an equal copy, another tensor or the first again."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4, bias=False) for _ in range(3))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return self.a(x) + self.b(x) + self.c(other)


NAMES = ["a.weight", "b.weight", "c.weight"]


def gram(*inputs: Tensor) -> Tensor:
    rows = torch.cat([x.reshape(-1, 4) for x in inputs])
    return rows.T @ rows


def test_layers_share_a_sum_only_if_they_share_the_input() -> None:
    """Inputs of equal shape are not equal inputs: a Hessian of the neighbour's would round by the wrong columns."""
    torch.manual_seed(0)
    x, y, z = torch.randn(3, 2, 5, 4)
    model = Three()
    hessians = InputHessians()
    with observed(model, NAMES, hessians.add):
        model(x, y)
        model(y.clone(), z)
    found = hessians.result()
    assert hessians.stages() == [["a.weight", "b.weight"], ["c.weight"]]
    assert found.keys() == set(NAMES)
    torch.testing.assert_close(found["a.weight"], gram(x, y))
    torch.testing.assert_close(found["b.weight"], gram(x, y))
    torch.testing.assert_close(found["c.weight"], gram(y, z))


def test_only_named_layers_count_and_only_inside_the_block() -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    model = Three()
    hessians = InputHessians()
    with observed(model, ["a.weight", "c.weight"], hessians.add):
        model(x, 2 * x)
    model(x, x)
    found = hessians.result()
    assert found.keys() == {"a.weight", "c.weight"}
    torch.testing.assert_close(found["a.weight"], gram(x))
    torch.testing.assert_close(found["c.weight"], 4 * gram(x))
