"""What the file of an unknown family must not hold: keys that may change what is cached."""

from collections.abc import Iterator
from typing import Any

from kvbook.accounting.errors import ConfigError, named, shown
from kvbook.accounting.layouts import Layout
from kvbook.accounting.reading import Reading
from kvbook.accounting.tables import table

FACTORS = ("ratio", "factor", "multiplier")  # in names of numbers that change nothing at 1
HEADS = ("n_heads", "n_kv_heads", "head_dim")


def refuse_hints(reading: Reading, found: Layout, latent: bool) -> None:
    """Raise ConfigError where an unknown family has a key that may change what is cached.

    `latent` says whether it was read as caching latents: then widths of heads do not matter.
    """
    unknown = table("families")["unknown"]
    told = found.key is not None or "state" in found.roles  # the file says which layers attend
    hints = unknown["hints"] + ([] if told else unknown["layout_hints"])
    parts = unknown["harmless_parts"] + (unknown["state_parts"] if told else [])
    parts = parts + (unknown["latent_parts"] if latent else [])
    fields = table("families")["fields"]
    harmless = {*unknown["harmless"], *reading.used}
    harmless.update(path for name in unknown["understood"] for path in fields[name])
    for path, value in _entries(reading.config):
        key = path.rpartition(".")[2]
        if path in harmless or any(part in path for part in parts) or _means_nothing(key, value):
            continue
        if _is_other_part(key, value) or _says_the_same(reading, path, value):
            continue
        bare = key.replace("qkv", "")  # what queries, keys and values share says nothing of heads
        if any(hint in bare for hint in hints):
            raise _unknown(reading, path, value)
    if latent and reading.config.get("use_mla") is False:
        raise _unknown(reading, "use_mla", False)
    for key in ("is_encoder_decoder", "add_cross_attention", "use_sliding_window"):
        if reading.config.get(key) is True:
            raise ConfigError(f"{key} is true, and {reading.name} is not known.")
    key, window = reading.field("window")
    switched_off = reading.config.get("use_sliding_window") is False
    if isinstance(window, int) and not switched_off and found.key is None:
        raise ConfigError(
            f"{key} is {shown(window)}, and which layers of {reading.name} slide is not known."
        )


def _unknown(reading: Reading, path: str, value: Any) -> ConfigError:
    return ConfigError(
        f"{named(path)} is {shown(value)}, and what it means for {reading.name} is not known."
    )


def _entries(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All keys with their values, and dotted those of an object that describes attention."""
    for key, value in config.items():
        yield key, value
        if isinstance(value, dict) and any(part in key for part in ("attn", "attention", "mixer")):
            for inner, item in value.items():
                yield f"{key}.{inner}", item


def _means_nothing(key: str, value: Any) -> bool:
    """Whether a value leaves attention as it is: off, empty, a factor of 1, a plain kind."""
    if value is None or value is False or value == [] or value == {}:
        return True
    if isinstance(value, int | float) and value == 1 and not isinstance(value, bool):
        return any(word in key for word in FACTORS)
    names = value if isinstance(value, list) else [value]
    plain = table("families")["unknown"]["plain"]
    return all(isinstance(name, str) and name in plain for name in names)


def _is_other_part(key: str, value: Any) -> bool:
    """Whether an object describes another part than the language model."""
    parts = table("families")["unknown"]["other_parts"]
    return isinstance(value, dict) and any(part in key for part in parts)


def _says_the_same(reading: Reading, path: str, value: Any) -> bool:
    """Whether a nested key repeats a size that was read."""
    _, dot, key = path.rpartition(".")
    if not dot or isinstance(value, bool) or not isinstance(value, int):
        return False
    fields = table("families")["fields"]
    return any(key in fields[name] and reading.field(name)[1] == value for name in HEADS)
