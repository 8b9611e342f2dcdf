"""Suspicions about scripts, plain and packed."""

import base64
import json
import lzma
import zlib
from pathlib import Path

import pytest

from golf.field.audit import Audit
from golf.field.figures import Figure
from golf.field.folder_audit import audit
from golf.field.foreign_run import ForeignRun
from golf.field.script_audit import check_code_size
from golf.field.submission_json import Claims
from golf.settings.composition import rules_named
from tests.field.folders import SCRIPT, write

STRICT = rules_named("strict")


def packed(source: str, kind: str) -> str:
    raw = source.encode()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return {
        "plain": source,
        "lzma": "import lzma,base64\nexec(lzma.decompress(base64.b85decode("
        f"{base64.b85encode(lzma.compress(raw))!r})))",
        "bytes": f"import zlib\nexec(zlib.decompress({zlib.compress(raw)!r}))",
        "hex": f"import zlib\neval(compile(zlib.decompress(bytes.fromhex('{zlib.compress(raw).hex()}')),'x','exec'))",
        "deflate": f"import zlib,base64\nexec(zlib.decompress(base64.b85decode("
        f"{base64.b85encode(deflate.compress(raw) + deflate.flush()).decode()!r}),-15))",
        "twice": "import zlib,base64\nexec(zlib.decompress(base64.b64decode("
        f"{base64.b64encode(zlib.compress(packed(source, 'lzma').encode())).decode()!r})))"
        if kind == "twice"
        else "",
    }[kind]


MORE = "".join(f"x{i} = {i * 7919 % 10007}\n" for i in range(300))
SUSPICIOUS = {
    SCRIPT + "import requests\n": "imports requests: there is no network",
    SCRIPT + "__import__('socket')\n": "imports socket: there is no network",
    SCRIPT + "subprocess.run(['curl', 'http://x'])\n": "it runs curl: there is no network",
    SCRIPT + "torch.hub.load_state_dict_from_url('x')\n": "downloads: there is no network",
    SCRIPT.replace("model(val_tokens)", "load('fineweb_train_000000.bin')"): "eval_val names training text",
}


@pytest.mark.parametrize("kind", ["plain", "lzma", "bytes", "hex", "deflate", "twice"])
def test_what_a_packed_script_does_is_seen(tmp_path: Path, kind: str) -> None:
    assert audit(write(tmp_path, packed(SCRIPT + MORE, kind)), None, STRICT).look_at == []
    for script, expected in SUSPICIOUS.items():
        found = audit(write(tmp_path, packed(script + MORE, kind)), None, STRICT)
        assert len(found.look_at) == 1 and expected in found.look_at[0] and found.faults == []


def test_what_cannot_be_unpacked_is_said_not_to_be_checked(tmp_path: Path) -> None:
    code = json.dumps("".join(chr(0x4E00 + i * 37 % 5000) for i in range(3000)))
    found = audit(write(tmp_path, f"exec(unpack({code}))"), None, STRICT)
    assert any("packed in a way that is not read here" in line for line in found.unchecked)
    assert not any("no network" in line for line in found.in_order)


def test_the_compressed_form_in_the_logs_of_a_script_that_is_counted_in_full_is_no_question() -> None:
    claims, run = Claims("submission.json"), ForeignRun("a", ["a.log"])
    claims.figures["code_bytes"] = Figure(261_415, "submission.json: bytes_code")
    run.figures["code_bytes"] = Figure(37_748, "a.log:1")
    for packed_bytes, questions in ((71_584, 0), (30_000, 1)):
        found = Audit()
        check_code_size(261_415, packed_bytes, claims, [run], found)
        assert len(found.look_at) == questions and found.faults == []
