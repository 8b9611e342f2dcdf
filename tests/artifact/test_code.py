"""Code bytes are counted, and by what a submission would have to contain."""

import lzma

from golf.artifact.code import code_bytes, counted_files


def test_counted_files_are_those_a_rank_needs() -> None:
    names = {f"{p.parent.name}/{p.name}" for p in counted_files()}
    assert {"model/gpt.py", "optim/muon.py", "artifact/container.py", "golf/config.py"} <= names
    assert not {"data/pydocs.py", "golf/composition.py", "report/curves.py", "launch/torchrun.py"} & names


def test_wrapped_size_is_between_the_compressed_and_the_raw_source() -> None:
    source = b"".join(p.read_bytes() for p in counted_files())
    assert len(lzma.compress(source)) < code_bytes() < len(source)


def test_a_technique_counts_only_where_it_is_selected() -> None:
    names = {p.name for p in counted_files(["soft_round"])}
    assert {"base.py", "soft_round.py", "fake_quant.py"} <= names and "xsa.py" not in names
    assert code_bytes() < code_bytes(["xsa"]) < code_bytes(["xsa", "bigram"])
