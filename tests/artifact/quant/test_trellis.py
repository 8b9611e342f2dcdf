"""The trellis: Ungerboeck's codes, a Viterbi search that is exact without feedback, and equal codes on CPU and GPU."""

import itertools

import numpy as np
import pytest
import torch

from golf.artifact.quant import gptq, trellis_rounding
from golf.artifact.quant.bit_prices import BitPrices, learned_prices, no_prices
from golf.artifact.quant.formats import CodedTensor, decode
from golf.artifact.quant.gptq import damped_root, weighted_errors
from golf.artifact.quant.trellis import PARITY_CHECKS, path_offsets, transitions
from golf.artifact.quant.trellis_rounding import in_batches, trellis_codes
from tests.artifact.quant.test_columns import case
from tests.support import refusal


@pytest.mark.parametrize("states", PARITY_CHECKS)
def test_every_path_satisfies_the_parity_check(states: int) -> None:
    """Σ h⁰(i) z⁰(t-i) + h¹(i) z¹(t-i) = 0 over the two low bits of the points, Ungerboeck 1982, table I."""
    codes = torch.randint(-9, 10, (5, 200), dtype=torch.int8, generator=torch.Generator().manual_seed(states))
    points = (2 * codes.int() + path_offsets(codes, states)).numpy()
    low, high = points & 1, points >> 1 & 1
    h0, h1 = PARITY_CHECKS[states]
    memory = h0.bit_length() - 1
    assert 1 << memory == states and low.any()
    for t in range(memory, 200):
        taps = [(h0 >> i & 1) * low[:, t - i] + (h1 >> i & 1) * high[:, t - i] for i in range(memory + 1)]
        assert not (np.sum(taps, axis=0) % 2).any()


@pytest.mark.parametrize("states", PARITY_CHECKS)
def test_without_feedback_the_path_is_the_best_of_all(states: int) -> None:
    w = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    codes = trellis_codes(w, torch.eye(6, dtype=torch.float64), states, no_prices(w))
    all_codes = torch.tensor(list(itertools.product([-2, -1, 0, 1, 2], repeat=6)), dtype=torch.int8)
    values = all_codes + path_offsets(all_codes, states) / 2
    best = (w[:, None] - values).square().sum(2).amin(1)
    found = (w - codes - path_offsets(codes, states) / 2).square().sum(1)
    torch.testing.assert_close(found, best)


@pytest.mark.parametrize("states", PARITY_CHECKS)
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 150])
def test_compiled_and_batched_codes_are_equal(states: int, columns: int) -> None:
    pytest.importorskip("numba")
    w, h = case(11, columns)
    w, root = w.double() * 2.4, damped_root(h, 0.01)
    codes = trellis_rounding._row_by_row(w, root, states, no_prices(w))
    assert torch.equal(codes, in_batches(w, root, states, no_prices(w)))
    prices = learned_prices(
        codes, path_offsets(codes, states), 0.2 * float(root.diagonal().square().reciprocal().mean())
    )
    cheaper = trellis_rounding._row_by_row(w, root, states, prices)
    assert torch.equal(cheaper, in_batches(w, root, states, prices))
    assert columns == 1 or not torch.equal(cheaper, codes)
    # Far beyond the grid all codes are at its end, -126 or -125.
    assert in_batches(torch.full_like(w, -1e6), root, states, no_prices(w)).min() >= -126


def gains(w: torch.Tensor, h: torch.Tensor) -> list[float]:
    """Decibels that 4, 8 and 16 states take off the weighted error of a uniform grid of the same step."""
    root = damped_root(h, 0.0)
    # Both take the columns in their own order, where GPTQ takes them in that of the inputs.
    on_grid = gptq._with_feedback(w, root, w.new_ones(len(w)), 127)
    found = []
    for states in PARITY_CHECKS:
        codes = trellis_codes(w, root, states, no_prices(w))
        error = weighted_errors(w, codes + path_offsets(codes, states) / 2, h).sum()
        found.append(float(10 * (weighted_errors(w, on_grid, h).sum() / error).log10()))
    return found


def test_the_gain_over_a_uniform_grid_grows_with_the_states() -> None:
    """About a decibel of the 1.53 dB that any quantizer can gain at equal entropy."""
    w = 2.4 * case(300, 160)[0].double()
    found = gains(w, torch.eye(160, dtype=torch.float64))
    assert found == sorted(found) and found[0] > 0.9 and found[2] < 1.53


def test_with_feedback_the_search_finds_nearer_points_too() -> None:
    """Survivors spend errors where inputs are small to save them where inputs are large: more than a trellis gives."""
    w, h = case(100, 96, spread=1.0)
    assert gains(2.4 * w.double(), h)[1] > 2


def test_a_price_on_bits_buys_entropy_with_error() -> None:
    w, h = case(200, 64)
    w, root = w.double() * 1.5, damped_root(h, 0.01)
    codes = trellis_codes(w, root, 8, no_prices(w))
    bit = 0.15 * float(root.diagonal().square().reciprocal().mean())
    cheaper = trellis_codes(w, root, 8, learned_prices(codes, path_offsets(codes, 8), bit))

    def bits_and_error(codes: torch.Tensor) -> tuple[float, float]:
        offsets = path_offsets(codes, 8)
        lengths = learned_prices(codes, offsets, 1.0)
        bits = lengths.lengths[lengths.widths(), offsets.long(), codes.long() + 128].mean()
        return float(bits), float(weighted_errors(w, codes + offsets / 2, h).sum())

    (bits, error), (fewer, more) = bits_and_error(codes), bits_and_error(cheaper)
    assert fewer < bits - 0.02 and more > error
    # 6.02 dB a bit is what smaller steps would cost: the price has to buy cheaper.
    assert 10 * np.log10(more / error) < 6.02 * (bits - fewer)


def test_decoding_follows_the_states() -> None:
    codes = torch.tensor([[3, -1, 0, 2, 1], [0, 1, 1, -4, 0]], dtype=torch.int8)
    columns = torch.tensor([4, 0, -4, 8, 0], dtype=torch.int8)
    following, offset = transitions(8)
    expected = torch.zeros(2, 5)
    for row in range(2):
        state = 0
        for j in [2, 1, 4, 0, 3]:  # from small steps to large ones
            value = float(codes[row, j]) + int(offset[state]) / 2
            expected[row, j] = value * 2.0 ** (int(columns[j]) / 4) * (row + 1)
            state = int(following[state, int(codes[row, j]) & 1])
    coded = CodedTensor(codes, torch.tensor([1.0, 2.0]).half(), torch.float32, columns=columns, states=8)
    torch.testing.assert_close(decode(coded), expected)


def test_prices_are_code_lengths() -> None:
    """Codes of two widths at random: each pays about what its own histogram says."""
    generator = torch.Generator().manual_seed(0)
    widths = torch.where(torch.arange(64) < 32, 1.0, 8.0)
    codes = (torch.randn(4000, 64, generator=generator) * widths).round().to(torch.int8)
    offsets = torch.zeros_like(codes)
    prices: BitPrices = learned_prices(codes, offsets, 1.0)
    bits = prices.lengths[prices.widths(), 0, codes.long() + 128]
    normal = torch.log2(widths * (2 * torch.pi * torch.e) ** 0.5).double()
    assert float(bits[:, 32:].mean()) == pytest.approx(float(normal[32:].mean()), abs=0.05)
    assert float(bits[:, :32].mean()) == pytest.approx(float(normal[:32].mean()), abs=0.1)
    # One of two codes is one bit, if it is known which two each offset has.
    offsets = torch.randint(0, 2, codes.shape, generator=generator)
    codes = (4 * torch.randint(0, 2, codes.shape, generator=generator) - 4 * offsets).to(torch.int8)
    prices = learned_prices(codes, offsets, 1.0)
    bits = prices.lengths[prices.widths(), offsets, codes.long() + 128]
    assert float(bits.mean()) == pytest.approx(1.0, abs=0.01)
    # Widths beyond the table are those at its ends.
    ends = BitPrices(torch.zeros(3, 2, 256), torch.tensor([-5, 0, 9]), torch.tensor([0, 1]))
    assert ends.widths().tolist() == [[0, 0], [0, 1], [2, 2]]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("quant.mlp.rounding=trellis", "quant.prune.to_fit=true"), "A code that is set to zero moves all later ones"),
    ],
)
def test_what_cannot_be_is_refused(overrides: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(*overrides)
