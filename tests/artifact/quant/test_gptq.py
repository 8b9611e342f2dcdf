"""GPTQ against the published algorithm written out column by column, and what breaks it elsewhere."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.artifact.quant.formats import QMAX, CodedTensor, as_stored, decode, encode_integer, row_clips, row_scale
from golf.artifact.quant.gptq import damped_root, encode_gptq, gptq_codes, importance, inputs_of, weighted_errors
from golf.errors import GolfError
from golf.settings.config import GPTQConfig, QuantConfig, TensorQuant
from tests.support import parity

PUBLISHED_QUANTILES = [0.999, 0.9995, 0.9999, 0.99999, 1.0]
SEARCH = TensorQuant("int6", clip="search", rounding="gptq")
FLOORS = {"floor": QuantConfig(), "own range": QuantConfig(scale_floor="eps")}


def inputs(columns: int, tokens: int, correlation: float, seed: int) -> np.ndarray:
    """`[tokens, columns]`: a few common factors and noise, of sizes that differ by column."""
    random = np.random.default_rng(seed)
    common = random.standard_normal((tokens, max(1, columns // 8))) @ random.standard_normal(
        (max(1, columns // 8), columns)
    )
    x = np.sqrt(correlation) * common / np.sqrt(max(1, columns // 8)) + np.sqrt(
        1 - correlation
    ) * random.standard_normal((tokens, columns))
    return x * random.lognormal(0, 0.5, columns)


def case(
    rows: int, columns: int, *, tokens: int = 2000, correlation: float = 0.9, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Weights `[rows, columns]` float32 of unequal rows, and the Hessian of correlated inputs."""
    x = inputs(columns, tokens, correlation, seed)
    random = np.random.default_rng(seed + 1)
    w = random.standard_normal((rows, columns)) * random.lognormal(-2, 0.5, (rows, 1))
    return torch.from_numpy(w.astype(np.float32)), torch.from_numpy(x.T @ x)


def published(
    w: np.ndarray,
    h: np.ndarray,
    qmax: int,
    *,
    floor: bool,
    twice: bool = True,
    quantiles: Sequence[float] = PUBLISHED_QUANTILES,
) -> np.ndarray:
    """Decoded weights of the published algorithm, act-order and damping of 1 % included, column by column.

    As in PR #593 one quantile for the matrix is chosen by plain squared error. With `twice` the Hessian is damped when
    it is collected and then again, as there; without it is arXiv 2210.17323's.
    """
    original, h = w.astype(np.float64), h + twice * 0.01 * np.diag(h).mean() * np.eye(len(h))
    dead = np.diag(h) == 0
    h, w = h + np.diag(dead.astype(float)), np.where(dead, 0.0, original)
    h = h + 0.01 * np.diag(h).mean() * np.eye(len(h))
    order = np.argsort(-np.diag(h), kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    best, best_error = w, np.inf
    for quantile in quantiles:
        clip = np.quantile(np.abs(original), quantile, axis=1)
        step = np.maximum(clip / qmax, 1 / qmax if floor else 2.0**-24).astype(np.float16).astype(np.float64)
        left, decoded = w[:, order].copy(), np.zeros_like(w)
        for j in range(len(h)):
            code = np.clip(np.round(left[:, j] / step), -qmax, qmax)
            decoded[:, order[j]] = code * step
            left[:, j:] -= np.outer((left[:, j] - code * step) / upper[j, j], upper[j, j:])
        if (error := np.square(decoded - original).mean()) < best_error:
            best, best_error = decoded, error
    return best


PUBLIC = GPTQConfig(damping=[0.01], unused_inputs="one")  # with `chosen_by=matrix` what the public scripts do


def test_parity_of_sdclip() -> None:
    """Codes and scales of the April records, bit by bit; one case has unused inputs, one more than a block."""
    arrays, config = parity("gptq05_sdclip")
    for i, one in enumerate(config["cases"]):
        w, h = (torch.from_numpy(arrays[f"{what}/{i}"]) for what in "wH")
        how = TensorQuant(f"int{one['bits']}", clip="std", clip_k=one["clip_sigmas"], rounding="gptq")
        coded = encode_gptq(w, how, QuantConfig(scale_floor="eps", gptq=PUBLIC, chosen_by="matrix"), h)
        assert torch.equal(coded.data, torch.from_numpy(arrays[f"codes/{i}"])), one["what"]
        assert coded.scale is not None and torch.equal(coded.scale, torch.from_numpy(arrays[f"scale/{i}"]))


@pytest.mark.parametrize("seed", range(4))
def test_one_quantile_a_matrix_is_the_published_choice(seed: int) -> None:
    w, h = case(20, 40, seed=seed)
    h[:, 3] = h[3] = 0.0
    quantiles = [0.8, 0.9, 0.97, 1.0]
    how = TensorQuant("int4", clip="search", clip_search=quantiles, rounding="gptq")
    coded = encode_gptq(w, how, QuantConfig(scale_floor="eps", gptq=PUBLIC, chosen_by="matrix"), h)
    theirs = published(w.numpy(), h.numpy(), 7, floor=False, twice=False, quantiles=quantiles)
    torch.testing.assert_close(decode(coded).double(), torch.from_numpy(theirs), rtol=1e-6, atol=1e-9)


def error_of(coded: CodedTensor, w: Tensor, h: Tensor) -> float:
    return float(weighted_errors(w.double(), decode(coded).double(), h.double()).sum())


def damped(h: Tensor) -> Tensor:
    """Return the Hessian by which results are compared: that of the first damping, without columns never used."""
    alive = h.diagonal() > 0
    return h + 0.01 * (h.diagonal().sum() / alive.sum().clamp(min=1)) * alive.to(h).diag()


KINDS = ("independent", "correlated", "low rank", "unequal", "very unequal", "dead columns")


def random_case(random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Weights and the Hessian of inputs of any kind: few or many, dependent, of any size, with columns never used."""
    rows, columns = (int(random.choice(sizes)) for sizes in ([1, 2, 3, 8, 24], [1, 2, 3, 5, 16, 40, 130]))
    tokens = int(random.choice([1, 2, columns // 2 + 1, columns, 4 * columns, 600]))
    kind = random.choice(KINDS)
    x = random.standard_normal((tokens, columns))
    if kind in ("correlated", "low rank"):
        factors = max(1, columns // 8)
        common = random.standard_normal((tokens, factors)) @ random.standard_normal((factors, columns))
        x = common + (0.2 * x if kind == "correlated" else 0.0)
    if kind == "dead columns":
        x[:, random.random(columns) < 0.4] = 0.0
    x *= {"unequal": random.lognormal(0, 1.5, columns), "very unequal": 10.0 ** random.uniform(-6, 6, columns)}.get(
        kind, 1.0
    )
    x *= 10.0 ** random.choice([-8, -3, 0, 0, 3, 8])
    w = (
        random.standard_normal((rows, columns))
        * random.lognormal(-2, 0.5, (rows, 1))
        * random.choice([0.01, 1, 1, 1000])
    )
    return torch.from_numpy(w.astype(np.float32)), torch.from_numpy(x.T @ x)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_the_published_algorithm_on_any_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(15):
        w, h = random_case(random)
        fmt, floor = str(random.choice(["int8", "int6", "int4"])), bool(random.integers(2))
        for quantiles in ([1.0], PUBLISHED_QUANTILES):
            how = TensorQuant(fmt, clip="search", clip_search=quantiles)
            ours = error_of(encode_gptq(w, how, FLOORS["floor" if floor else "own range"], h), w, damped(h))
            theirs = published(w.numpy(), h.numpy(), QMAX[fmt], floor=floor, twice=False, quantiles=quantiles)
            nothing = float(weighted_errors(w.double(), torch.zeros_like(w).double(), h).sum())
            bound = float(weighted_errors(w.double(), torch.from_numpy(theirs), damped(h)).sum())
            assert ours <= bound * (1 + 1e-9) + 1e-14 * nothing


@pytest.mark.parametrize("quant", FLOORS.values(), ids=FLOORS.keys())
@pytest.mark.parametrize(
    ("rows", "columns", "tokens", "correlation"),
    [
        (48, 64, 2000, 0.9),
        (20, 96, 2000, 0.0),
        (64, 40, 500, 0.99),
        (7, 200, 60, 0.9),
        (1, 30, 300, 0.5),
        (30, 1, 50, 0.0),
    ],
)
def test_never_worse_than_the_published_algorithm(
    rows: int, columns: int, tokens: int, correlation: float, quant: QuantConfig
) -> None:
    for seed in range(4):
        w, h = case(rows, columns, tokens=tokens, correlation=correlation, seed=seed)
        w = w * (8.0 if seed % 2 else 1.0)  # with rows above one, where the floor has no say, and below
        ours = error_of(encode_gptq(w, SEARCH, quant, h), w, damped(h))
        for twice in (True, False):
            theirs = published(w.numpy(), h.numpy(), 31, floor=quant.scale_floor != "eps", twice=twice)
            assert ours <= float(weighted_errors(w.double(), torch.from_numpy(theirs), damped(h)).sum()) * (1 + 1e-9)


@pytest.mark.parametrize("quant", FLOORS.values(), ids=FLOORS.keys())
@pytest.mark.parametrize("fmt", ["int6", "int5", "int4"])
def test_at_most_half_the_error_of_the_clip_search_on_correlated_inputs(fmt: str, quant: QuantConfig) -> None:
    w, h = case(96, 128, correlation=0.9)
    how = TensorQuant(fmt, clip="search")
    assert error_of(encode_gptq(w, how, quant, h), w, h) <= 0.5 * error_of(encode_integer(w, how, quant), w, h)


def test_without_the_floor_it_is_better() -> None:
    w, h = case(32, 64)
    floored, own = (error_of(encode_gptq(w, SEARCH, quant, h), w, h) for quant in FLOORS.values())
    assert own < 0.5 * floored


@pytest.mark.parametrize("block_size", [1, 7, 128])
def test_codes_are_those_of_the_definition_whatever_the_block(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.artifact.quant.gptq.BLOCK_COLUMNS", block_size)
    w, h = case(12, 50)
    step = as_stored(row_scale(row_clips(w, TensorQuant("int6"), 31)[0], 31, "eps"))
    gptq = GPTQConfig(damping=[0.01])
    codes, _ = gptq_codes(w, h, [step], 31, QuantConfig(gptq=gptq))
    damped = h.numpy() + 0.01 * np.diag(h).mean() * np.eye(50)
    order = np.argsort(-np.diag(h))
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    left, s = w.double().numpy()[:, order], step.double().numpy()
    for j in range(50):
        code = np.clip(np.round(left[:, j] / s), -31, 31)
        assert np.array_equal(codes[:, order[j]], code)
        left[:, j:] -= np.outer((left[:, j] - code * s) / upper[j, j], upper[j, j:])


def test_each_row_takes_the_candidate_with_the_least_error() -> None:
    w, h = case(64, 64)
    one = GPTQConfig(damping=[0.01])
    scales = [
        as_stored(row_scale(clip, 7, "eps"))
        for clip in row_clips(w, TensorQuant(clip="search", clip_search=[0.9, 0.99, 1.0]), 7)
    ]
    alone = [gptq_codes(w, h, [scale], 7, QuantConfig(gptq=one)) for scale in scales]
    errors = torch.stack([weighted_errors(w.double(), codes.double() * s[:, None], damped(h)) for codes, s in alone])
    codes, scale = gptq_codes(w, h, scales, 7, QuantConfig(gptq=one))
    torch.testing.assert_close(weighted_errors(w.double(), codes.double() * scale[:, None], damped(h)), errors.amin(0))
    assert len(set(errors.argmin(0).tolist())) > 1


def test_rotation_with_the_hessian_of_rotated_inputs() -> None:
    w, h = case(32, 64)
    w[:, 3] *= 30
    rotated = TensorQuant("int4", rotation="hadamard", clip_quantile=1.0)
    plain = TensorQuant("int4", clip_quantile=1.0)
    own = FLOORS["own range"]
    with_gptq = error_of(encode_gptq(w, rotated, own, h), w, h)
    assert encode_gptq(w, rotated, own, h).rotated
    assert with_gptq < 0.5 * error_of(encode_integer(w, rotated, own), w, h)
    assert with_gptq < error_of(encode_gptq(w, plain, own, h), w, h)


def test_inputs_that_were_always_zero_get_no_weight() -> None:
    w, h = case(16, 24)
    h[[2, 9]], h[:, [2, 9]] = 0, 0
    coded = encode_gptq(w, SEARCH, FLOORS["own range"], h)
    assert not coded.data[:, [2, 9]].any() and coded.data[:, 3].any()
    # One of the dampings that are tried counts them as one in the mean, as the published algorithm does.
    used = h.diagonal().argsort(descending=True)[:22]
    damping = 0.01 * torch.where(h.diagonal() > 0, h.diagonal(), 1.0).mean()
    inverse = (h[used][:, used] + damping * torch.eye(22)).inverse()
    found = inputs_of(h, GPTQConfig(damping=[0.01])).roots[1]
    torch.testing.assert_close(found[:22, :22], torch.linalg.cholesky(inverse).T)
    theirs = published(w.numpy(), h.numpy(), 31, floor=False)
    bound = float(weighted_errors(w.double(), torch.from_numpy(theirs), h).sum())
    assert error_of(coded, w, h) <= bound * (1 + 1e-9)


def test_without_any_input_it_rounds_to_nearest() -> None:
    w, _ = case(16, 24)
    coded = encode_gptq(w, SEARCH, FLOORS["own range"], torch.zeros(24, 24))
    nearest = encode_integer(w, SEARCH, FLOORS["own range"])
    assert torch.equal(coded.data, nearest.data) and torch.equal(coded.scale, nearest.scale)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "hessian",
    [
        lambda h: h[:, :1] @ h[:1],  # one direction only
        lambda h: 1e-30 * h,
        lambda h: 1e30 * h,
        lambda h: (
            h + 1e-3 * h.abs().max() * torch.randn(h.shape, generator=torch.Generator().manual_seed(0))
        ),  # not even positive
        lambda h: torch.diag(10.0 ** torch.linspace(-12, 12, len(h))).double(),
        lambda h: torch.ones_like(h),
    ],
    ids=["rank 1", "tiny", "huge", "indefinite", "unequal", "constant"],
)
@pytest.mark.parametrize("damping", [0.01, 0.0])
def test_any_hessian_gives_codes(hessian: Callable[[Tensor], Tensor], damping: float) -> None:
    w, h = case(16, 24)
    h = hessian(h)
    quant = QuantConfig(scale_floor="eps", gptq=GPTQConfig(damping=[damping]))
    coded = encode_gptq(w, SEARCH, quant, h)
    back = decode(coded)
    assert coded.data.abs().max() <= 31 and back.isfinite().all()
    if h.allclose(h.T):
        assert error_of(coded, w, h) <= error_of(encode_integer(w, SEARCH, quant), w, h) * (1 + 1e-9)


def test_root_is_that_of_the_inverse() -> None:
    _, h = case(1, 30)
    root = damped_root(h, 0.01)
    damped = h + 0.01 * h.diagonal().mean() * torch.eye(30).double()
    torch.testing.assert_close(root.T @ root @ damped, torch.eye(30, dtype=torch.float64), atol=1e-7, rtol=0)
    assert torch.equal(root, root.triu())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h: h.index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(torch.nan).double()), "not finite"),
        (lambda h: h.index_put((torch.tensor(1), torch.tensor(1)), torch.tensor(torch.inf).double()), "not finite"),
        (lambda h: -h, "negative diagonal"),
        (lambda h: h[:5, :5], r"\(5, 5\) where the matrix has 24 columns"),
    ],
)
def test_what_is_no_hessian_is_refused(change: Callable[[Tensor], Tensor], sentence: str) -> None:
    w, h = case(4, 24)
    with pytest.raises(GolfError, match=sentence):
        encode_gptq(w, SEARCH, QuantConfig(), change(h))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 20),
    fmt=st.sampled_from(["int8", "int6", "int4"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_rows_without_spread_and_rows_of_zeros(
    rows: int, columns: int, fmt: str, seed: int, data: st.DataObject
) -> None:
    w, h = case(rows, columns, tokens=40, seed=seed)
    zeros = data.draw(st.lists(st.integers(0, rows - 1), max_size=3))
    w[zeros] = 0.0
    constant = [row for row in data.draw(st.lists(st.integers(0, rows - 1), max_size=3)) if row not in zeros]
    w[constant] = 0.25
    for clip in ("quantile", "std", "search"):
        coded = encode_gptq(w, TensorQuant(fmt, clip=clip), FLOORS["own range"], h)
        back = decode(coded)
        assert back.isfinite().all() and not back[zeros].any() and coded.data.abs().max() <= QMAX[fmt]
        if columns == 1:
            assert ((back - w).abs() <= 0.6 * w.abs() + 1e-6).all()


def test_a_row_that_matters_more_gets_a_wider_clip() -> None:
    """Hessian-aware SDClip, row by row in Python: k·σ·(1 + λ(ρ - 1)) / qmax."""
    w, h = case(6, 16)
    how = TensorQuant("int6", clip="std", clip_k=3.0, clip_importance=0.175, rounding="gptq")
    coded = encode_gptq(w, how, QuantConfig(scale_floor="eps"), h)
    diagonal, rows = h.diagonal().tolist(), w.tolist()
    weights = [sum(abs(x) * d for x, d in zip(row, diagonal, strict=True)) for row in rows]
    assert coded.scale is not None
    for i, row in enumerate(rows):
        share = weights[i] / (sum(weights) / len(weights))
        clip = 3.0 * float(np.std(row, ddof=1)) * (1 + 0.175 * (share - 1))
        assert coded.scale[i].item() == pytest.approx(clip / 31, rel=1e-3)
    plain = encode_gptq(w, TensorQuant("int6", clip="std", clip_k=3.0, rounding="gptq"), QuantConfig(), h)
    assert plain.scale is not None and not torch.equal(plain.scale, coded.scale)
    assert torch.equal(importance(torch.zeros(3, 16), h, 0.175), torch.ones(3))
