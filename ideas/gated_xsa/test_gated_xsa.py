"""Parity with PR #2118, and the two ends of the gate: the plain attention, and the whole exclusion."""

import pytest
import torch

import golf
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from tests.support import compose, parity
from tests.training.techniques.test_stacks import LQER27, april_overrides, of_lqer27

TINY = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]


def test_parity_on_a_packed_row() -> None:
    arrays, config = parity("gatedxsa2118")
    effective = config["effective"]
    loop = f"{{first:{effective['loop_start']},last:{effective['loop_end']},passes:{effective['num_loops'] + 1}}}"
    first_lane = effective["parallel_start_layer"]
    april = [o for o in april_overrides(effective) if not o.startswith("tech.xsa")]
    cfg = compose(
        [
            *(o.replace("[xsa,", "[gated_xsa,") for o in LQER27),
            *april,
            # The case does not name the slope; only with that of #2140 the other parts give its loss.
            *("tech.leaky_relu.slope=0.3", f"tech.recurrence={loop}", f"tech.parallel_lanes.first={first_lane}"),
            *("model.within_documents=true", "eval.documents=true", f"data.train_seq_len={effective['train_seq_len']}"),
        ]
    )
    model = build_model(cfg)
    model.load_state_dict(of_lqer27(arrays, "param", first_lane))
    ids, targets = (torch.from_numpy(arrays[f"{name}_ids"])[None].long() for name in ("input", "target"))
    loss = model(ids, targets, ("recurrence",))
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays["loss"]), abs=1e-5)
    torch.testing.assert_close(
        model.logits(ids, ("recurrence",)),
        torch.from_numpy(arrays["logits"]).view(1, ids.numel(), -1),
        rtol=1e-4,
        atol=1e-4,
    )
    gradients = of_lqer27(arrays, "grad", first_lane)
    assert len(gradients) == effective["num_layers"]
    for name, gradient in gradients.items():
        found = model.get_parameter(name).grad
        assert found is not None and (found - gradient).norm() <= 1e-3 * gradient.norm(), name


def outputs(tech: str, alpha: float = 0.0) -> torch.Tensor:
    torch.manual_seed(0)
    model: GPT = golf.build_model(golf.compose([*TINY, f"tech=[{tech}]", "model.compute_dtype=fp32"]))
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if "xsa_alpha" in name:
            torch.nn.init.constant_(weight, alpha)
        else:
            weight.data.normal_(0, 0.3, generator=generator)
    return model.logits(torch.arange(2, 14)[None])


@torch.no_grad()
def test_the_ends_of_the_gate() -> None:
    plain, whole = outputs(""), outputs("xsa")
    torch.testing.assert_close(outputs("gated_xsa", 0.0), plain)
    torch.testing.assert_close(outputs("gated_xsa", 20.0), whole, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain, whole)
