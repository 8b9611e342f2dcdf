"""Numbers of the challenge: its budget, its tracks, its validation split, and the fields of a submission.json."""

# README of openai/parameter-golf: 16,000,000 decimal bytes for artifact and code, ten minutes each on 8×H100.
CAP_BYTES = 16_000_000
TRAIN_SECONDS, EVAL_SECONDS = 600.0, 600.0
# Training stops after the step in which the time runs out, so a short overrun is accepted.
GRACE_SECONDS = 0.5
RECORD_GPUS = 8
RECORD_STEPS = 13_780  # steps of the public baseline in its ten minutes

RECORD_TRACK, OTHER_TRACK = "10min_16mb", "non_record_16mb"
SEEDS_WANTED = {RECORD_TRACK: 3, OTHER_TRACK: 1}

VALIDATION_DOCUMENTS = 50_000
VALIDATION_BYTES = 151_080_000  # UTF-8 bytes of the whole split, whatever the tokenizer
BYTE_VOCABULARY = 260  # tokens of text as bytes: 256 bytes and four control tokens, one of which begins each document
BYTE_TOKENS = VALIDATION_BYTES + VALIDATION_DOCUMENTS
# Tokens of the split by vocabulary.
VALIDATION_TOKENS = {BYTE_VOCABULARY: BYTE_TOKENS, 1024: 62_021_632, 4096: 45_508_608, 8192: 40_540_160}
CASEOPS_TOKENS = 1.1803  # times as many where capitals are operators
OLDER_SPLIT_BYTES = 155_770_000  # UTF-8 bytes of the first export, on which the official baseline was scored

SUBMISSION_TEXTS = ("author", "github_id", "name", "blurb", "date")
SUBMISSION_NUMBERS = ("val_loss", "val_bpb", "bytes_total", "bytes_code")
DATA_REPOSITORY = "willdepueoai/parameter-golf"  # repository of the hub with the tokenized FineWeb
