"""Starting weights: what loads, and the sentence for what does not."""

import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from golf.errors import GolfError
from golf.training.model.weights import load_weights, read_weights, weights_to_bytes


class Layer(nn.Linear):
    """A layer with a buffer that is for training alone."""

    def __init__(self, columns: int, rows: int):
        super().__init__(columns, rows)
        self.register_buffer("training_only", torch.ones(3))

    def scored_weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self.state_dict().items() if name != "training_only"}


def test_both_formats_give_the_weights_back(tmp_path: Path) -> None:
    weights = Layer(3, 2).scored_weights()
    (tmp_path / "w.safetensors").write_bytes(weights_to_bytes(weights))
    torch.save(weights, tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        model = Layer(3, 2)
        load_weights(model, tmp_path / name)
        assert torch.equal(model.weight, weights["weight"]) and model.get_buffer("training_only").tolist() == [1, 1, 1]


def test_wrong_names_and_shapes_are_named(tmp_path: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(2, 4), "extra": torch.zeros(1)}, tmp_path / "w.safetensors")
    with pytest.raises(
        GolfError, match=r"bias is missing; extra is not in the model; weight is \(2, 4\), not \(2, 3\)"
    ):
        load_weights(Layer(3, 2), tmp_path / "w.safetensors")
    safetensors.torch.save_file({name: torch.zeros(1) for name in ("bias", "p", "q")}, tmp_path / "w.safetensors")
    with pytest.raises(GolfError, match=r"weight is missing; p is not in the model; q is not in the model and 1 more"):
        load_weights(Layer(3, 2), tmp_path / "w.safetensors")


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("unpickled code ran",))


@pytest.mark.parametrize("content", [b"", b"not weights", pickle.dumps(Payload()), pickle.dumps([1, 2])])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_anything_else_is_refused_unread(
    content: bytes, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(GolfError, match=r"w\.(pt|safetensors)"):
        read_weights(path)
    assert "ran" not in capsys.readouterr().out


def test_a_pickled_object_inside_a_checkpoint_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"weight": Payload()}, tmp_path / "w.pt")
    with pytest.raises(GolfError, match="read safely"):
        read_weights(tmp_path / "w.pt")
    assert "ran" not in capsys.readouterr().out


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GolfError, match=r"nothing\.pt do not exist"):
        read_weights(tmp_path / "nothing.pt")
