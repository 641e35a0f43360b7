"""The JSON tables beside this module, read once.

families.json says how model families name and lay out what they cache. Its parts:

- `inside`: keys under which a file nests its language model, in the order tried.
- `fields`: for each quantity the names of its key, dotted where nested. Where several are given
  they must agree. A list gives one number per layer, for the head counts.
- `roles`: names of layers in lists -> role: full, sliding, chunked, cross, state, none.
- `rules`: layout rules by name; layouts.py says what each `op` means.
- `states`: the values of a constant state in one layer: a sum of products of `fields`; `else`: the
  state that counts where the file does not give the first of them.
- `unknown`: how a family that is not listed is read: `layout`; `hints`, parts of key names at which
  it is refused because they may change what is cached; `layout_hints`, likewise unless the file
  lists its layers. Passed over are `harmless` names and `harmless_parts` of names; `state_parts`
  where the file lists its layers, `latent_parts` where it caches latents; the keys of the fields
  that are `understood`; `plain` kinds of attention; objects that are `other_parts` of a model.
- `families`: by model_type.

A family's entry may hold:

- `same`: another family from which everything is taken that is not given here.
- `defaults`: quantities that hold where the file has no such key; null in the file means null.
  n_layers, n_heads and hidden count only in a nested config, from which files leave them out.
- `switches`: likewise for the keys that conditions (`when`, `off`) ask for.
- `fields`: names of keys that replace the general ones; the first one found counts.
- `inside`: replaces the general list. `error`: why the family has no answer.
- `layout`: rules in the order tried, each by name or in full; without it, `layer_types`.
- `last`: the role of the last layer, whatever the layout says. `extra`: the key that says how many
  layers more a list of layers may have (they predict ahead and are not counted).
- `off`: the condition under which sliding layers are full.
- `kv`: the first entry whose `when` holds gives the KV heads: a number, n_kv_heads or n_heads;
  `needs` names the key that is asked for where n_kv_heads is not given.
- `role_fields`: for one role, sizes with `keys`, `default`, `times_full`, or only `when`.
- `hidden_factor`: times the hidden size before it is divided by the heads.
- `latent`: attention caches one row of kv_lora_rank + qk_rope_head_dim values, and needs both;
  with `off`, unless.
- `shared`: which layers reuse a cache. `op` last: as many as the key says, at the end; factor: all
  but each n-th; groups: all but the first of each group; source: those whose source is another.
- `cross`: a cross cache beside each layer, of `source_tokens` or as long as the `context`.
- `cross_tokens`: paths from which a cross layer's image tokens are computed.
- `repeat`: caches per layer. `state`, `state_in_every_layer`: which of `states`, and where.

dtypes.json says how many bytes values take; weights.json what layers are made of.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = {
    "families": "families.json",
    "dtypes": "dtypes.json",
    "weights": "weights.json",
    "models": "models.json",
    "gpus": "gpus.json",
}


@cache
def table(name: str) -> Any:
    """The content of the table of that name; do not change what it returns."""
    return json.loads((HERE / FILES[name]).read_text(encoding="utf-8"))


def family(name: str) -> dict[str, Any] | None:
    """The entry of a model_type, with what it takes over by `same` filled in; None if unknown."""
    entry = table("families")["families"].get(name)
    if entry is None or "same" not in entry:
        return entry
    base = family(entry["same"]) or {}
    merged = {**base, **entry}
    for key in ("defaults", "switches", "fields"):
        merged[key] = {**base.get(key, {}), **entry.get(key, {})}
    return merged
