"""The stream begins with the mapped row, the logits end in the narrow table, and what cannot go along is refused."""

import pytest
import torch

import golf
from ideas.bigram.bigram import Bigram
from ideas.factored_embedding.factored_embedding import FactoredEmbedding
from tests.training.techniques.small import small_model

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


def test_the_stream_and_the_logits() -> None:
    model = small_model(FactoredEmbedding(dim=6), layers=3)
    seen = []
    model.blocks[-1].register_forward_hook(lambda _, args, out: seen.append(out))
    table, up, down = model.tok_emb.weight, model.embed_proj.weight, model.embed_proj_rev.weight
    assert [tuple(w.shape) for w in (table, up, down)] == [(20, 6), (16, 6), (6, 16)]
    with torch.no_grad():
        start = table[IDS] @ up.T
        start = start / start.square().mean(-1, keepdim=True).sqrt()
        torch.testing.assert_close(model.stream_start(IDS), start, atol=1e-5, rtol=0)
        logits = model.logits(IDS)
        last = seen[0] / seen[0].square().mean(-1, keepdim=True).sqrt()
        torch.testing.assert_close(logits, 30 * torch.tanh(last @ down.T @ table.T / 30), atol=1e-5, rtol=0)


def test_terms_are_added_behind_the_map() -> None:
    model = small_model(FactoredEmbedding(dim=6), Bigram(buckets=8, dim=4), layers=2)
    assert model.before_norm["add"][0] is model.embed_proj
    assert model.logits(IDS).shape == (2, 5, 20)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.tie_embeddings=false"], "set model.tie_embeddings=true"),
        (["tech.factored_embedding.dim=112"], "saves nothing"),
        (["eval=ttt_lora"], "leave head out of eval.ttt.lora_targets"),
        (["tech=[factored_embedding,multi_token]"], "exclude each other"),
        (["tech=[factored_embedding,norm_eps]"], "exclude each other"),
    ],
)
def test_what_cannot_go_along_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(golf.GolfError, match=said):
        golf.compose(["model=4l", "scale=laptop", "tech=[factored_embedding]", *overrides])
