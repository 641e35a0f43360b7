"""config.json -> CacheSpec, by the table families.json.

The steps: find the language model's part of the file; find its family; give each layer a role
(layouts.py); give each role its sizes; apply what families do on top (windows switched off, caches
that layers share, latents, cross caches).
"""

from collections.abc import Mapping
from typing import Any

from kvbook.accounting.errors import ConfigError, named, shown
from kvbook.accounting.hints import refuse_hints
from kvbook.accounting.layouts import Layout, layout
from kvbook.accounting.reading import LARGEST, MISSING, Reading, whole
from kvbook.accounting.spec import CacheSpec, LayerCache
from kvbook.accounting.tables import family as family_entry
from kvbook.accounting.tables import table

NOTHING = (None, MISSING)
ATTENDING = {"full", "sliding", "chunked", "cross"}


def cache_spec(config: Mapping[str, Any]) -> CacheSpec:
    """What the model of a Hugging Face config.json caches, layer by layer.

    Raises ConfigError, one sentence that names the field, where the config is wrong, contradicts
    itself, or does not say enough. What was assumed stands in the result's notes.
    """
    reading = read(config)
    if reason := reading.family.get("error"):
        raise ConfigError(f"model_type is {shown(reading.name)}, which {reason}.")
    found = layout(reading)
    _switch_off(reading, found)
    windows = {"sliding": _window(reading, found, "sliding", "window")}
    windows["chunked"] = _window(reading, found, "chunked", "chunk")
    _share(reading, found)
    layers = _layers(reading, found, windows)
    if "cross" in reading.family:
        layers += _cross(reading, layers)
    state = _state_values(reading, found)
    if not any(layer.values_per_token for layer in layers):
        reading.note("No layer attends: there is no KV cache, only a state of constant size.")
    _note_index(reading, found)
    if not reading.family.get("known", True):
        refuse_hints(reading, found, any(layer.kind == "latent" for layer in layers))
    layers *= reading.family.get("repeat", 1)
    return CacheSpec(
        family=reading.name,
        layers=tuple(layers),
        max_context=_plain(reading, "max_context"),
        state_values=state,
        notes=tuple(reading.notes),
        n_heads=_plain(reading, "n_heads"),
    )


def read(config: Mapping[str, Any]) -> Reading:
    """The language model's part of a config, with its family's entry of the table.

    A family that the table does not know gets the general one, and a note says so.
    Raises ConfigError where the config is no object or names its model_type wrongly.
    """
    if not isinstance(config, Mapping):
        raise ConfigError("The config must be a JSON object, with keys and values.")
    _check_keys(config, "the config")
    outer = inner = dict(config)
    name, entry = _family_of(outer)
    inside = (entry or {}).get("inside", table("families")["inside"])
    forced = {key: entry[key] for key in ("cross",) if key in entry} if entry else {}
    for _ in range(3):
        nested = next((inner[key] for key in inside if isinstance(inner.get(key), dict)), None)
        if nested is None or (_counts_layers(inner) and not _counts_layers(nested)):
            break
        inner = nested
        _check_keys(inner, "the nested config")
        own_name, own_entry = _family_of(inner)
        if own_name is not None and (own_entry is not None or entry is None):
            name, entry = own_name, own_entry
    if entry is None:
        entry = {"known": False, **table("families")["unknown"]}
    if "error" in entry and inner.get("is_decoder") is True:  # an encoder set up as a decoder
        entry = {}
    known_as = named(name) if name else "a config without model_type"
    reading = Reading(inner, outer, {**entry, **forced}, known_as)
    if not entry.get("known", True):
        reading.note(
            f"{reading.name} is not in the table of families: "
            "read by the standard fields, as keys and values in every layer."
        )
    return reading


def _check_keys(config: Mapping[Any, Any], where: str) -> None:
    """Raise ConfigError for a key that is no string: JSON has none, but a dict may."""
    for key in config:
        if not isinstance(key, str):
            raise ConfigError(f"The key {shown(key)} of {where} is not a string.")


def _counts_layers(config: Mapping[str, Any]) -> bool:
    return any(config.get(key) is not None for key in table("families")["fields"]["n_layers"])


def _family_of(config: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    name = config.get("model_type")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"model_type is {shown(name)}; it must be a string.")
    return name, family_entry(name) if name else None


def _switch_off(reading: Reading, found: Layout) -> None:
    """A switch such as use_sliding_window: false makes sliding layers full."""
    off = reading.family.get("off")
    if off and reading.holds(off) and "sliding" in found.roles:
        found.roles = ["full" if role == "sliding" else role for role in found.roles]
        reading.note(f"{', '.join(off)} is off: no layer slides.")


def _window(reading: Reading, found: Layout, role: str, name: str) -> int | None:
    """The window of the layers with a role; null makes them full where a rule gave the role."""
    if role not in found.roles or found.windows:
        return None
    key, value = reading.field(name)
    if value is not None and value is not MISSING:
        return whole(key, value)
    if found.key is not None or (value is MISSING and set(found.roles) != {role}):
        state = "null" if value is None else "missing"
        where = found.key or reading.name
        raise ConfigError(f"{key} is {state}, but {where} has {role} layers, which need it.")
    found.roles = ["full" if old == role else old for old in found.roles]
    return None


def _share(reading: Reading, found: Layout) -> None:
    """Mark the layers that reuse the cache of another layer."""
    rule = reading.family.get("shared")
    if rule is None or not reading.holds(rule.get("when", {})):
        return
    n_layers = len(found.roles)
    key, value = reading.first(rule["keys"])
    if value is None or value is MISSING:
        value = rule.get("default", 0 if rule["op"] == "last" else None)
    if value is None:
        return
    if rule["op"] == "last":
        own = n_layers - whole(key, value, low=0, high=n_layers - 1)
        owners = [layer < own for layer in range(n_layers)]
    elif rule["op"] == "factor":
        factor = whole(key, value)
        owners = [layer % factor == 0 for layer in range(n_layers)]
    elif rule["op"] == "groups":
        owners = _first_of_groups(key, value, n_layers)
    else:
        if not isinstance(value, list) or len(value) != n_layers:
            raise ConfigError(f"{key} must be a list of {n_layers} layer numbers.")
        owners = [
            whole(key, source, low=0, high=layer) == layer for layer, source in enumerate(value)
        ]
    found.roles = [
        role if own or role not in ("full", "sliding", "chunked") else "shared"
        for role, own in zip(found.roles, owners, strict=True)
    ]


def _first_of_groups(key: str, groups: Any, n_layers: int) -> list[bool]:
    """Whether each layer has a cache of its own: in each group, only the first one has."""
    owners = [True] * n_layers
    for group in groups if isinstance(groups, list) else [groups]:
        if not isinstance(group, list):
            raise ConfigError(f"{key} is {shown(groups)}; it must be a list of lists of layers.")
        for place, layer in enumerate(group):
            owners[whole(key, layer, low=0, high=n_layers - 1)] = place == 0
    return owners


def _layers(reading: Reading, found: Layout, windows: Mapping[str, int | None]) -> list[LayerCache]:
    """The cache of each layer: its role with the sizes of that role."""
    attending = ATTENDING & set(found.roles)
    latent = _latent(reading) if attending else None
    sizes = {role: _sizes(reading, found, role) for role in attending} if not latent else {}
    tokens = _cross_tokens(reading) if "cross" in attending else None
    listed = _listed_sizes(reading) if attending and not latent else {}
    layers = []
    for index, role in enumerate(found.roles):
        if role not in attending:
            layers.append(LayerCache(role))  # type: ignore[arg-type]
        elif latent:
            window = found.windows.get(index, windows.get(role))
            layers.append(LayerCache("latent", 1, latent, 0, window))
        else:
            size = {name: _at(value, index) for name, value in sizes[role].items()}
            size.update(_own_sizes(index, listed.get(str(index), {})))
            if index in found.kv_heads:
                size["n_kv_heads"] = found.kv_heads[index]
            fixed = tokens if role == "cross" else None
            window = found.windows.get(index, windows.get(role))
            layers.append(LayerCache(role, **size, window=window, tokens=fixed))  # type: ignore[arg-type]
    return layers


def _latent(reading: Reading) -> int | None:
    """Values of a latent and its rotary part, where the family or the file caches latents."""
    rule = reading.family.get("latent")
    known = reading.family.get("known", True)
    if rule is None and known:
        return None
    if isinstance(rule, dict) and reading.holds(rule["off"]):
        return None
    rank = reading.integer("kv_lora_rank")
    if rank is None and rule is None:
        return None
    if rank is None:
        key, value = reading.field("kv_lora_rank")
        state = "null" if value is None else "missing"
        raise ConfigError(f"{key} is {state}; {reading.name} caches latents and needs it.")
    rope = reading.integer("qk_rope_head_dim", low=0)
    if rope is None:
        raise ConfigError("qk_rope_head_dim is missing; a latent (kv_lora_rank) needs it.")
    return rank + rope


def _sizes(reading: Reading, found: Layout, role: str) -> dict[str, list[int] | int]:
    """KV heads and widths of the layers with a role: each a number, or a list over layers."""
    n_layers = len(found.roles)
    heads = reading.per_layer("n_heads", n_layers)
    kv_heads = _kv_heads(reading, heads, n_layers)
    listed = reading.config.get("per_layer_config") is not None
    own = {} if listed else _role_fields(reading, role)
    if "n_kv_heads" in own:
        kv_heads = own["n_kv_heads"]
    elif kv_heads is None and len(found.kv_heads) < sum(r in ATTENDING for r in found.roles):
        raise _no_heads(reading)
    k_dim = own.get("head_dim") or _head_dim(reading, own.get("n_heads", heads))
    v_dim = own.get("v_head_dim")
    if v_dim is None and "head_dim" not in own and "latent" not in reading.family:
        v_dim = reading.integer("v_head_dim")
    v_dim = k_dim if v_dim is None else v_dim
    return {"n_kv_heads": kv_heads or 0, "k_dim": k_dim, "v_dim": v_dim}


def _no_heads(reading: Reading) -> ConfigError:
    key, value = reading.field("n_heads")
    state = "null" if value is None else "missing"
    return ConfigError(f"{key} is {state}; it must be a whole number.")


def _role_fields(reading: Reading, role: str) -> dict[str, int]:
    """Sizes that the family gives to one role alone."""
    sizes = {}
    for name, rule in reading.family.get("role_fields", {}).get(role, {}).items():
        if not reading.holds(rule.get("when", {})):
            continue
        key, value = reading.first(rule["keys"])
        if value is MISSING:
            value = rule.get("default")
            if "times_full" in rule:  # a multiple of what the other layers have
                value = rule["times_full"] * (reading.integer(name) or 0) or None
        if value is not None:
            sizes[name] = whole(key, value)
    return sizes


def _kv_heads(
    reading: Reading, heads: list[int] | int | None, n_layers: int
) -> list[int] | int | None:
    """KV heads of a layer, by the family's switches; the heads themselves where none are given."""
    use: Any = "n_kv_heads"
    for rule in reading.family.get("kv", []):
        if reading.holds(rule.get("when", {})):
            use = rule["use"]
            reading.check_needs(rule)
            break
    if isinstance(use, int):
        return use
    kv_heads = reading.per_layer("n_kv_heads", n_layers) if use == "n_kv_heads" else None
    if kv_heads is None:
        return heads
    for index in range(n_layers):
        some, few = _at(heads, index), _at(kv_heads, index)
        if some is not None and few is not None and some % few:
            key = reading.field("n_kv_heads")[0]
            raise ConfigError(f"{key} is {few}, which does not divide {some} attention heads.")
    return kv_heads


def _head_dim(reading: Reading, heads: list[int] | int | None) -> int:
    """The width of a key: given, or the hidden size divided by the heads."""
    given = reading.integer("head_dim")
    if given is not None:
        return given
    hidden = reading.required("hidden") * reading.family.get("hidden_factor", 1)
    if heads is None:
        raise _no_heads(reading)
    if not isinstance(heads, int):
        raise ConfigError("head_dim is missing; it cannot be derived from a list of heads.")
    if hidden % heads:
        key, name = reading.field("hidden")[0], reading.field("n_heads")[0]
        raise ConfigError(
            f"{name} is {heads}, which does not divide {key} {hidden}, and head_dim is missing."
        )
    return hidden // heads


def _listed_sizes(reading: Reading) -> dict[str, Any]:
    """What per_layer_config holds, by the layer's number without leading zeros ("5" for "05")."""
    given = reading.config.get("per_layer_config")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError("per_layer_config must be an object with layer numbers as keys.")
    _check_keys(given, "per_layer_config")
    found: dict[str, Any] = {}
    for name, sizes in given.items():
        found.setdefault(name.lstrip("0") or name[:1], sizes)
    return found


def _own_sizes(index: int, own: Any) -> dict[str, int]:
    """Sizes that the file gives to one layer in per_layer_config."""
    if not isinstance(own, dict):
        raise ConfigError(f"per_layer_config.{index} is {shown(own)}; it must be an object.")
    sizes = {}
    for key, name in (("num_key_value_heads", "n_kv_heads"), ("v_head_dim", "v_dim")):
        if own.get(key) is not None:
            sizes[name] = whole(f"per_layer_config.{index}.{key}", own[key])
    if own.get("head_dim") is not None:
        width = whole(f"per_layer_config.{index}.head_dim", own["head_dim"])
        sizes = {"k_dim": width, "v_dim": width, **sizes}
    return sizes


def _cross(reading: Reading, layers: list[LayerCache]) -> list[LayerCache]:
    """A cross cache beside each layer of a decoder, over the encoder's tokens."""
    tokens = None
    if reading.family["cross"] == "source_tokens":
        tokens = reading.integer("source_tokens")
    if tokens is None:
        reading.note("The cross cache holds as many encoder tokens as the context has.")
    own = _role_fields(reading, "cross")
    return [
        LayerCache(
            "cross",
            own.get("n_kv_heads", layer.n_kv_heads),
            own.get("head_dim", layer.k_dim),
            own.get("head_dim", layer.v_dim),
            tokens=tokens,
        )
        for layer in layers
    ]


def _cross_tokens(reading: Reading) -> int | None:
    """Image tokens of layers that attend to one image alone; None: as many as the context."""
    paths = reading.family.get("cross_tokens")
    if paths is None:
        return None
    image = Reading(reading.outer, reading.outer, {}, reading.name)
    values = {name: image.find(path) for name, path in paths.items()}
    if any(value is MISSING or value is None for value in values.values()):
        reading.note("The cross cache holds as many image tokens as the context has.")
        return None
    size = {name: whole(paths[name], value) for name, value in values.items()}
    tokens = ((size["image"] // size["patch"]) ** 2 + 1) * size["tiles"]
    reading.note(f"The cross cache holds one image of {tokens} tokens.")
    return tokens


def _state_values(reading: Reading, found: Layout) -> int | None:
    """Values of the constant states of one sequence; None where the config does not tell."""
    rule = table("families")["states"].get(reading.family.get("state", ""))
    every_layer = reading.family.get("state_in_every_layer", False)
    count = len(found.roles) if every_layer else found.roles.count("state")
    if not count:
        return 0
    if rule is None:
        reading.note("The constant states of layers without keys and values are not counted.")
        return None
    while "else" in rule and reading.first(next(iter(rule["fields"].values())))[1] in NOTHING:
        rule = table("families")["states"][rule["else"]]
    sizes: dict[str, int] = {}
    for name, keys in rule["fields"].items():
        key, value = reading.first(keys)
        if value is None or value is MISSING:
            value = rule["defaults"].get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            reading.note(f"The constant states are not counted: {key} does not give a number.")
            return None
        sizes[name] = value
    each = 0
    for term in rule["terms"]:
        product = 1
        for factor in term:
            product *= factor if isinstance(factor, int) else sizes[factor]
        each += product
    return count * each


def _note_index(reading: Reading, found: Layout) -> None:
    """Say what an indexer's keys would add: they are no keys or values of the attention."""
    width = reading.integer("index_dim") if reading.family.get("latent") else None
    if width is not None:
        reading.note(f"The indexer's keys, {width} values a token and layer, are not counted.")


def _plain(reading: Reading, name: str) -> int | None:
    """What the file or the family says of a quantity that nothing depends on; None if not a size."""
    own = reading.family.get("fields", {}).get(name)
    value = reading.first(table("families")["fields"][name] if own is None else own)[1]
    if value is None or value is MISSING:
        value = reading.family.get("defaults", {}).get(name)
    plain = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST
    return value if plain else None


def _at(value: Any, index: int) -> Any:
    return value[index] if isinstance(value, list) else value
