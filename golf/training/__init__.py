"""The work of a rank: data, model, techniques, optimizer, the timed loop, export and score.

Public: `loop.rank.run_rank`, `model.build.build_model`, `optim.groups.build_optimizer`, `scoring.scorer.score`.
"""
