"""`arete plan`: what it prints, writes and refuses."""
import json
import os
import subprocess

import pytest

ARETE = os.environ.get("ARETE_PROGRAM")
pytestmark = pytest.mark.skipif(not ARETE, reason="ARETE_PROGRAM does not name the program arete")


def plan(*arguments):
    done = subprocess.run([ARETE, "plan", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_ways_are_projected_in_text_and_json(tmp_path):
    code, out, err = plan("llama-7b", "--gpus", 64, "--top", 3, "--json", tmp_path / "plans.json")
    assert code == 0 and "projected, not measured" in out and "6.74 G parameters on 64 GPUs" in out and "more ways that fit" in out, err
    written = json.loads((tmp_path / "plans.json").read_text())
    assert written["projected"] is True and len(written["plans"]) == 3
    best = written["plans"][0]
    assert best["data"] * best["tensor"] * best["pipeline"] == 64 and best["tokens_per_second"] >= written["plans"][1]["tokens_per_second"]
    # What one GPU was measured at.
    code, out, _ = plan("llama-7b", "--gpus", 64, "--efficiency", 0.25, "--json", "-")
    slower = json.loads(out)
    assert slower["efficiency"] == 0.25 and slower["plans"][0]["tokens_per_second"] < 0.55 * best["tokens_per_second"]


@pytest.mark.parametrize("config, parameters", [
    ({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
      "hidden_act": "silu", "tie_word_embeddings": False}, 6.74e9),
    ({"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "activation_function": "gelu_new"}, 0.124e9)])
def test_sizes_of_a_configuration(tmp_path, config, parameters):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    code, out, err = plan(file, "--gpus", 8, "--json", "-")
    assert code == 0 and abs(json.loads(out)["parameters"] / parameters - 1) < 0.02, err


def test_refusals(tmp_path):
    (tmp_path / "config.json").write_text('{"n_layer": 2}')
    for arguments, text in [(["bert"], "there is no such model"), (["gpt2", "--machine", "x"], "no figures of this machine"),
                            (["llama-405b", "--gpus", 8], "no way fits into the memory"), ([tmp_path / "none.json"], "no file of JSON"),
                            ([tmp_path / "config.json"], "does not say hidden_size"), (["gpt2", "--gpus", 0], "--gpus")]:
        code, _, err = plan(*arguments)
        assert code != 0 and text in err, (arguments, err)
