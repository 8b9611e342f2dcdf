"""The divergence against a sum over the vocabulary; whose weights the teachers have; what is scored has none."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import golf
from golf.errors import GolfError
from golf.run.progress import Progress
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.techniques.base import Technique
from ideas.distillation.distillation import divergence

TINY = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
CHOSEN = ["tech=[distillation]", "model.compute_dtype=fp32"]


def made(*chosen: str) -> tuple[golf.Config, GPT]:
    cfg = golf.compose([*TINY, *CHOSEN, *chosen])
    return cfg, golf.build_model(cfg)


def the_technique(cfg: golf.Config) -> Technique:
    technique = cfg.tech["distillation"]
    assert isinstance(technique, Technique)
    return technique


def text() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(2, 1024, (2, 13), generator=torch.Generator().manual_seed(1))
    return ids[:, :-1], ids[:, 1:]


def slow_divergence(teacher: list[float], student: list[float], temperature: float, top: int) -> float:
    def logs(z: list[float]) -> list[float]:
        total = math.log(sum(math.exp(x / temperature) for x in z))
        return [x / temperature - total for x in z]

    counted = sorted(range(len(teacher)), key=lambda i: -teacher[i])[: top or None]
    p, q = logs([teacher[i] for i in counted]), logs(student)
    return temperature**2 * sum(math.exp(p[k]) * (p[k] - q[i]) for k, i in enumerate(counted))


@pytest.mark.parametrize("top", [0, 1, 5])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_divergence_is_the_sum_over_the_vocabulary(top: int, temperature: float) -> None:
    torch.manual_seed(0)
    teacher, student = torch.randn(3, 20), torch.randn(3, 20)
    expected = [
        slow_divergence(t.tolist(), s.tolist(), temperature, top) for t, s in zip(teacher, student, strict=True)
    ]
    assert divergence(teacher, student, temperature, top).tolist() == pytest.approx(expected, rel=1e-5)
    whole = F.kl_div((student / temperature).log_softmax(1), (teacher / temperature).softmax(1), reduction="none")
    if not top:
        torch.testing.assert_close(divergence(teacher, student, temperature, 0), temperature**2 * whole.sum(1))
        assert divergence(teacher, teacher, temperature, 0).abs().max() < 1e-6


def saved(place: Path, *chosen: str) -> Path:
    """Return the artifact of a model with random weights."""
    cfg = golf.compose([*TINY, "model.compute_dtype=fp32", *chosen])
    model = golf.build_model(cfg)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.2)
    file = place / "artifact.golf"
    file.write_bytes(golf.pack(golf.quantize(model.state_dict(), cfg.quant), cfg.model, cfg.quant, cfg.tech))
    return file


@torch.no_grad()
def test_a_teacher_from_a_file_takes_its_share_of_the_loss(tmp_path: Path) -> None:
    file = saved(tmp_path)
    cfg, model = made(f"tech.distillation.teacher={file}", "tech.distillation.top=0", "tech.distillation.share=0.25")
    teacher = golf.build_model(golf.compose([*TINY, "model.compute_dtype=fp32"]))
    teacher.load_state_dict(golf.load(file).state_dict())
    torch.nn.init.normal_(model.tok_emb.weight, 0, 0.2)
    inputs, targets = text()[0][:1], text()[1][:1]
    distance = [
        slow_divergence(t.tolist(), s.tolist(), 1.0, 0)
        for t, s in zip(teacher.logits(inputs)[0], model.logits(inputs)[0], strict=True)
    ]
    expected = 0.75 * model.token_losses(inputs, targets).mean().item() + 0.25 * sum(distance) / len(distance)
    the_technique(cfg).before_step(model, Progress(0, 0.0, 1.0))
    assert model(inputs, targets, ()).item() == pytest.approx(expected, rel=1e-5)


def test_a_teacher_of_another_model_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, "model.model_dim=64")
    with pytest.raises(GolfError, match="name one of the same model"):
        made(f"tech.distillation.teacher={file}")
    with pytest.raises(GolfError, match="check the path"):
        made(f"tech.distillation.teacher={tmp_path}/nowhere.golf")


@torch.no_grad()
def test_the_average_follows_the_weights_and_survives_a_checkpoint() -> None:
    cfg, model = made("tech.distillation.decay=0.75")
    weight, average = model.tok_emb.weight, model.tok_emb.weight.double()
    for step in range(4):
        weight += 0.1 * (step + 1)
        average = weight.double() if step == 0 else 0.75 * average + 0.25 * weight.double()
        the_technique(cfg).before_step(model, Progress(step, 0.0, 1.0))
    teacher = model.training_only["distillation"]
    torch.testing.assert_close(teacher.model.tok_emb.weight, average.float())
    again = made("tech.distillation.decay=0.75")[1]
    again.load_state_dict(copy.deepcopy(model.state_dict()))
    for each in (model, again):
        each.tok_emb.weight += 1.0
        the_technique(cfg).before_step(each, Progress(4, 0.0, 1.0))
    inputs, targets = text()
    assert torch.equal(model(inputs, targets, ()), again(inputs, targets, ()))


def test_a_teacher_learns_nothing_and_leaves_no_byte() -> None:
    cfg, model = made()
    plain = golf.build_model(golf.compose([*TINY, "model.compute_dtype=fp32"]))
    assert [*model.scored_weights()] == [*plain.state_dict()]
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    build_optimizer(cfg, model)
    before = copy.deepcopy(model.training_only["distillation"].state_dict())
    model(*text(), ()).backward()
    after = model.training_only["distillation"].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
