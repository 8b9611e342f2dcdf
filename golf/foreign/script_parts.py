"""Modules, parameters, operations and quantizers of a script that no known script has, so that no translation fits.

A translation knows switches and marks. A part without either would be left out without a word, so everything that the
model and the optimizers of a script are made of has to have a known name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# Classes of the public scripts whose parts golf has.
CLASSES = re.compile(
    r"RMSNorm|CastedLinear|Rotary|CausalSelfAttention|MLP|Block|GPT|Muon|SmearGate|BigramHashEmbedding"
    r"|ValueEmbedding|BatchedLinearLoRA|BatchedTTTLoRA|FusedMLP|ParallelMuon"
)
# Attributes of theirs that hold modules or parameters.
PARTS = re.compile(
    r"q_gain|rotary|attn_norm|mlp_norm|attn|mlp|attn_scale|mlp_scale|resid_mix|tok_emb|final_norm|blocks"
    r"|skip_weights|skip_gates|lm_head|attn_gate|c_q|c_k|c_v|proj|fc|scale|gate|embed|bigram|smear|qo_bank"
    r"|kv_bank|mlp_up_bank|mlp_down_bank|parallel_post_lambdas|parallel_resid_lambdas|lane_merge"
    r"|attn_gate_proj|attn_gate_w|smear_gate|smear_lambda|ve_shared|ve_layer_scales|ve_scales|value_embeds"
    r"|vr_lambda|A|B|lm_head_lora|q_loras|k_loras|v_loras|o_loras|mlp_loras|weight|bias|norm"
)
# Operations with numbers in them; what they compute is covered by the techniques and optimizers here.
OPERATIONS = re.compile(
    r"rms_norm|linear|arange|outer|cos|sin|full|ones|zeros|normal_|zeros_|constant_|cross_entropy|tanh"
    r"|stack|cat|relu|square|leaky_relu|sigmoid|scaled_dot_product_attention|flash_attn_func"
    r"|flash_attn_3_func|flash_attn_varlen_func|normalize|orthogonal_|uniform_|bitwise_xor|clamp|clamp_min"
    r"|lerp|masked_fill|norm|sum|where|empty|tensor|mean|zeropower_via_newtonschulz5"
    r"|softcapped_cross_entropy|rsqrt|sqrt|dropout|bmm|matmul|mm|embedding"
)
TORCH = ("torch", "F", "nn.init", "torch.nn.functional", "nn.functional", "torch.nn.init", "torch.linalg", "torch.fft")
# Calls through these names that compute nothing of the model.
HARMLESS = re.compile(
    r"no_grad|enable_grad|is_available|is_initialized|device|empty_like|zeros_like|ones_like|Generator"
    r"|compile|autocast|Parameter|Size|manual_seed|get_device_capability|is_grad_enabled"
)
LEVELS = {3, 7, 15, 31, 63, 255}  # highest codes of other widths than int8
CODECS = ("zstandard", "zstd", "brotli", "lzma", "bz2")


def unknown_parts(tree: ast.Module) -> list[str]:
    """Return what the model and the optimizers of a script have that no known script has, with its line."""
    found = []
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef) and _holds_numbers(made):
            if not CLASSES.fullmatch(made.name):
                found.append(f"class {made.name} (line {made.lineno})")
            else:
                found += [f"{made.name}: {part}" for part in dict.fromkeys(_inside(made))]
    return found


def unknown_quantizer(tree: ast.Module) -> list[str]:
    """Return the sign that a script without a known quantizer does not store int8 codes under zlib."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "quant" in node.name:
            numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            if found := sorted(LEVELS & numbers):
                return [f"quantization with codes up to {found[0]} ({node.name}, line {node.lineno})"]
    for call in ast.walk(tree):
        called = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if called.partition(".")[0] in CODECS and called.endswith(("compress", "Compressor")):
            return [f"codec {called.partition('.')[0]} (line {call.lineno})"]  # type: ignore[attr-defined]
    return []


def _holds_numbers(made: ast.ClassDef) -> bool:
    """Tell whether a class is a module or an optimizer."""
    bases = [ast.unparse(base) for base in made.bases]
    return any(base.startswith(("nn.", "torch.nn.", "torch.optim.")) or base.endswith("Module") for base in bases)


def _inside(made: ast.ClassDef) -> Iterator[str]:
    """Yield the parts and operations in a known class that are not known, and attention that sees later tokens."""
    for node in ast.walk(made):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and _makes_part(node.value) and not PARTS.fullmatch(target.attr):
                    yield f"{target.attr} (line {node.lineno})"
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if owner in TORCH and not (OPERATIONS.fullmatch(name) or HARMLESS.fullmatch(name)):
                yield f"{name} (line {node.lineno})"
            if any(k.arg == "is_causal" and ast.unparse(k.value) == "False" for k in node.keywords):
                yield f"attention to later tokens (line {node.lineno})"


def _makes_part(call: ast.Call) -> bool:
    """Tell whether a call makes a module or a parameter: its name is in nn, or begins with a capital letter."""
    name = ast.unparse(call.func)
    return name.startswith(("nn.", "torch.nn.")) or name[:1].isupper()
