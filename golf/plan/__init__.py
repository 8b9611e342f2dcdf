"""What a run will be before it starts: `tensors`, `flops`, `rehearsal` of its bytes, `history` of finished runs."""
