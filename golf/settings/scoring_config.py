"""The settings of validation, scores, test-time training and tilt."""

from __future__ import annotations

from dataclasses import dataclass, field

from golf.settings.fields import among, later, number, one_of, within


@dataclass
class PhasesConfig:
    """Training of all weights with SGD between batches of documents, on documents that have been scored."""

    # times at which the scoring pauses and all weights are trained; 0 = never
    count: int = later(number(0, at_least=0))
    # scored documents on which the last phase trains; the k-th of n trains on a share k/n of them
    documents: int = later(number(2000, at_least=1))
    # documents of a phase; queue: those scored first, longest first | upstream: shortest first, so that the longest of
    # the scored documents are left out, and a rank's sequences are one row
    order: str = later(one_of("queue", "upstream"))
    lr: float = later(number(0.001, at_least=0))  # learning rate, which falls as a cosine within a phase
    momentum: float = later(number(0.9, at_least=0, below=1))  # momentum, which begins at zero in every phase
    epochs: int = later(number(1, at_least=1))  # passes over a chunk
    grad_clip: float = later(number(1.0, at_least=0))  # largest global gradient norm; 0 = no clipping
    chunk_tokens: int = later(number(32_768, at_least=1))  # tokens with one learning rate; the last chunk is left out
    batch_seqs: int = later(number(32, at_least=1))  # sequences per update over all ranks
    freeze_blocks: int = later(number(0, at_least=0))  # number of first blocks that are not trained


@dataclass
class TTTConfig:
    """Test-time training; null stands for the value of the method's public recipe, see `ttt_recipe`."""

    # trained parameters; sgd: all, over the whole split | lora: low-rank factors, reset for every document
    method: str = one_of("off", "sgd", "lora")
    lr: float | None = number(None, above=0)  # learning rate
    chunk_tokens: int | None = number(None, at_least=1)  # tokens that are scored and then trained on
    # sequences of a chunk (sgd) or documents (lora) per update over all ranks
    batch_seqs: int | None = number(None, at_least=1)
    epochs: int = number(3, at_least=1)  # sgd: passes over a chunk
    momentum: float = number(0.9, at_least=0, below=1)  # sgd: momentum
    grad_clip: float = number(1.0, at_least=0)  # sgd: largest global gradient norm; 0 = no clipping
    freeze_blocks: int = number(2, at_least=0)  # sgd: number of first blocks that are not trained
    lora_rank: int = number(8, at_least=1)  # lora: rank of the factors
    seq_len: int | None = number(None, at_least=0)  # lora: tokens per window; null or 0 = eval.seq_len
    # lora: what gets factors; q, k, v, head: these matrices | o, mlp: from the normalised input of a layer's attention
    # and MLP to its output
    lora_targets: list[str] = later(
        field(default_factory=lambda: ["q", "v", "head"], metadata=among("q", "k", "v", "o", "mlp", "head"))
    )
    lora_alpha: float | None = later(number(None, above=0))  # lora: products are scaled by alpha / rank; null = not
    # lora: factors of a layer that runs several times; layer: one pair | application: a pair for each time
    lora_per: str = later(one_of("layer", "application"))
    # lora: A at the start of a document; same: one for all | drawn: one for each | kept: that of the document before
    # it in its row of the batch. B is always zero.
    lora_a: str = later(one_of("same", "drawn", "kept"))
    lora_beta1: float = later(number(0.9, at_least=0, below=1))  # lora: beta1 of AdamW
    lora_beta2: float = later(number(0.95, at_least=0, below=1))  # lora: beta2 of AdamW
    lora_weight_decay: float = later(number(0.0, at_least=0))  # lora: weight decay of AdamW
    # lora: chunks of short documents, as [[256, 8], [2000, 24]]: 8 tokens in a batch whose longest document has up to
    # 256 tokens and the BOS that ends it among them, 24 up to 2000, chunk_tokens beyond; [] = chunk_tokens for all
    lora_chunks: list[list[int]] = later(field(default_factory=list))
    lora_steps: int = later(number(1, at_least=1))  # lora: steps on a chunk after it has been scored
    # lora: end of a document's last window; whole_chunks: where its last chunk would end if it were full | document:
    # the document's end, as published, so that the context of its last scores tells where the text ends
    lora_windows: str = later(one_of("whole_chunks", "document"))
    # lora: queues that take batches of documents; lanes: eight, whatever the number of ranks | upstream: one for each
    # rank, so that the number of ranks changes scores with lora_a=kept or phases
    lora_queue: str = later(one_of("lanes", "upstream"))
    lora_phases: PhasesConfig = later(field(default_factory=PhasesConfig))  # lora: training of all weights in between


@dataclass
class TiltConfig:
    """A tilt of the scored distributions towards what followed the same context earlier in the text."""

    # source of the hints; off: no tilt | ngram: the commonest continuation so far of the last 8 to 16 tokens
    method: str = later(one_of("off", "ngram"))
    beta: float = later(number(2.0, above=0))  # logarithm of the factor on a hint that has followed its context always
    # factor on beta; share: that of its context's earlier occurrences which the hint has followed | constant: 1
    strength: str = later(one_of("share", "constant"))
    # exponent of 1 - p in a further factor on beta, where p is the model's probability of the hint; 0 = no such factor
    confidence: float = later(number(0.0, at_least=0))
    # with ttt.method=lora, rate at which each document learns by its own scores which of the factors 0.5 to 1.5 on beta
    # is best; 0 = no such factor
    hedge: float = later(number(0.0, at_least=0))
    # text with ttt.method=lora in which hints are found; scored: documents that are scored before, and the document so
    # far | stream: all earlier text, of which parts are scored later, as published; void but under rules=frontier
    order: str = later(one_of("scored", "stream"))
    # tokens of the contexts, longest first; the first context whose hint is sure enough gives it
    contexts: list[int] = later(field(default_factory=lambda: [16, 14, 12, 10, 8], metadata=within(at_least=1)))
    # for each context, the least share of its earlier occurrences that a hint has followed
    least_shares: list[float] = later(
        field(default_factory=lambda: [0.5, 0.5, 0.6, 0.7, 0.7], metadata=within(at_least=0, at_most=1))
    )
    # for each context, how often it has to have occurred
    least_counts: list[int] = later(field(default_factory=lambda: [2, 2, 2, 3, 3], metadata=within(at_least=1)))


@dataclass
class EvalConfig:
    """Validation during the run and the scores at its end."""

    seq_len: int | None = number(None, at_least=0)  # tokens per scored sequence; null or 0 = data.train_seq_len
    val_batch_tokens: int = number(524_288, at_least=1)  # tokens per scoring step over all ranks and micro-batches
    val_loss_every: int = number(1000, at_least=0)  # steps between validations; 0 = only after the last step
    val_at_start: bool = True  # validation before the first step too, unless val_loss_every=0
    dtype: str = one_of("auto", "bf16", "fp32")  # dtype of scoring, before and after quantization alike
    stride: int = number(0, at_least=0)  # tokens between the sliding windows that score the artifact; 0 = no such score
    stride_batch_seqs: int = number(32, at_least=1)  # windows per forward pass of a rank
    # context of a score; true: the target's own document | false: the sequence or window, across documents
    documents: bool = later(False)
    ttt: TTTConfig = field(default_factory=TTTConfig)
    tilt: TiltConfig = later(field(default_factory=TiltConfig))  # for sliding scores and test-time training
