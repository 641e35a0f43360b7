"""From the table's layout rules to one role per layer: full, sliding, chunked, cross, state, none.

A rule is an object with an `op` and, mostly, `keys`: dotted paths of which the first that is in
the file counts. A rule that finds none of its keys and has no `default` does not apply, and the
family's next rule is tried. After the last one, every layer is full.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.reading import MISSING, Reading, whole
from kvbook.accounting.tables import table

Rule = dict[str, Any]
MOST_LAYERS = 10_000
MAIN_NAMES = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")


@dataclass
class Layout:
    """A role for each layer, which key gave them, and sizes that the layout itself fixes."""

    roles: list[str]
    key: str | None = None  # None where no key of the file lists the layers
    kv_heads: dict[int, int] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)


def layout(reading: Reading) -> Layout:
    """The roles of all layers by the first of the family's rules that applies.

    Raises ConfigError for lists of the wrong length, unknown names, indices out of range.
    """
    key, given = reading.field("n_layers")
    n_layers = reading.integer("n_layers")
    if n_layers is not None:
        whole(key, n_layers, high=MOST_LAYERS)
    for rule in rules(reading):
        if n_layers is None and rule["op"] == "names" and given is MISSING:
            _, value = reading.first(rule["keys"])
            n_layers = len(value) if isinstance(value, list | str) and value else None
        if n_layers is None:
            continue
        found = OPS[rule["op"]](reading, rule, n_layers)
        if found is not None:
            return _ends_full(reading, found)
    return _ends_full(reading, Layout(["full"] * reading.required("n_layers")))


def rules(reading: Reading) -> list[Rule]:
    """The family's rules in the order in which they are tried."""
    named = table("families")["rules"]
    entries = reading.family.get("layout", ["layer_types"])
    return [named[entry] if isinstance(entry, str) else entry for entry in entries]


def _ends_full(reading: Reading, found: Layout) -> Layout:
    if "last" in reading.family:
        found.roles[-1] = reading.family["last"]
    return found


def _value(reading: Reading, rule: Rule) -> tuple[str, Any]:
    """What the rule's keys or its default give; null counts as not there."""
    key, value = reading.first(rule.get("keys", []))
    if value is None or value is MISSING:
        return key, rule.get("default", MISSING)
    return key, value


def _names(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`names`: a list with one name or number per layer, or a string with one letter per layer."""
    key, value = _value(reading, rule)
    if value is MISSING or (value == [] and "empty" in rule):
        return None
    if not isinstance(value, list | str):
        raise ConfigError(f"{key} is {shown(value)}; it must be a list with a name per layer.")
    extra = reading.find(reading.family["extra"]) if "extra" in reading.family else 0
    if isinstance(extra, int) and len(value) == n_layers + extra:  # layers that predict ahead
        value = value[:n_layers]
    if len(value) != n_layers:
        raise ConfigError(f"{key} has {len(value)} entries; it must have {n_layers}, one a layer.")
    return Layout([_role(rule, key, name) for name in value], key)


def _role(rule: Rule, key: str, name: Any) -> str:
    roles = rule.get("map") or table("families")["roles"]
    plain = isinstance(name, str | int) and not isinstance(name, bool)
    if not plain or str(name) not in roles:
        some = ", ".join(roles if "map" in rule else MAIN_NAMES)
        raise ConfigError(f"{key} names {shown(name)}, which is not known, as {some} are.")
    return roles[str(name)]


def _cycle(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`cycle`: a short list or string that is repeated until every layer has a role."""
    key, value = _value(reading, rule)
    if value is MISSING:
        return None
    if not isinstance(value, list | str) or not value:
        raise ConfigError(f"{key} is {shown(value)}; it must be a list of layer names.")
    if "map" in rule:
        value = [_role(rule, key, name) for name in value]
    roles = [value[layer % len(value)] for layer in range(n_layers)]
    if "last" in rule:
        roles[-1] = rule["last"]
    return Layout(roles)


def _every(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`every`: one layer in each period is a hit, the others are a miss.

    `at` says which: the start, the middle or the end of the period, or a key that gives an offset
    from its start. `prefix` lists the roles of first layers, before the periods begin; `also` more
    hits by index; `tail` the role of layers after the last whole period; `last` that of the last.
    """
    key, value = _value(reading, rule)
    if value is MISSING:
        return None
    period = whole(key, value)
    offset = _offset(reading, rule["at"], period)
    if offset is None:
        return None
    prefix = rule.get("prefix", [])[:n_layers]
    rest = n_layers - len(prefix)
    roles = [rule["hit"] if i % period == offset else rule["miss"] for i in range(rest)]
    if "tail" in rule:
        whole_periods = rest // period * period
        roles[whole_periods:] = [rule["tail"]] * (rest - whole_periods)
    roles = prefix + roles
    for index in rule.get("also", []):
        roles[index] = rule["hit"]
    if "last" in rule:
        roles[-1] = rule["last"]
    return Layout(roles)


def _offset(reading: Reading, at: Any, period: int) -> int | None:
    if isinstance(at, str):
        return {"start": 0, "middle": period // 2, "end": period - 1}[at]
    key, value = _value(reading, at)
    return None if value is MISSING else whole(key, value, low=0, high=period - 1)


def _pattern(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`pattern`: a string of letters, as in `cycle`, or a number, as in `every` without `last`."""
    _, value = _value(reading, rule)
    if isinstance(value, str):
        return _cycle(reading, rule, n_layers)
    number = {"op": "every", "at": "end", "hit": "full", "miss": "sliding"}
    number |= {key: rule[key] for key in ("keys", "default") if key in rule}
    return _every(reading, number, n_layers)


def _listed(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`listed`: the indices of the hits, counted from `base`; the other layers are a miss."""
    key, value = _value(reading, rule)
    if value is MISSING:
        return None
    if not isinstance(value, list):
        raise ConfigError(f"{key} is {shown(value)}; it must be a list of layer numbers.")
    roles = [rule["miss"]] * n_layers
    base = rule["base"]
    for index in value:
        roles[whole(key, index, base, base + n_layers - 1) - base] = rule["hit"]
    return Layout(roles)


def _from(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`from`: layers before the number that the key gives have one role, the others another."""
    key, value = _value(reading, rule)
    if value is MISSING:
        return None
    before = min(whole(key, value, low=0), n_layers)
    return Layout([rule["before"]] * before + [rule["after"]] * (n_layers - before))


def _repeat(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`repeat`: a list of pairs of a list of names and how often it is repeated."""
    key, value = _value(reading, rule)
    pairs = value if isinstance(value, list) else [None]
    groups: list[tuple[list[Any], int]] = []
    length = 0
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], list)):
            raise ConfigError(f"{key} is {shown(value)}; it must be a list of [[names], times].")
        groups.append((pair[0], whole(key, pair[1], high=n_layers)))
        length += len(pair[0]) * pair[1]
        if length > n_layers:
            break
    if length != n_layers and reading.find(key) in (None, MISSING):
        raise ConfigError(
            f"{key} is missing; what {reading.name} takes without it is for {length} layers, "
            f"not {n_layers}."
        )
    if length != n_layers:
        raise ConfigError(f"{key} gives {length} layers; it must give {n_layers}.")
    names = [name for group, times in groups for name in group * times]
    return Layout([_role(rule, key, name) for name in names], key)


def _blocks(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`blocks`: an object per layer whose `attention` may be left out, slide, or have own heads."""
    key, value = _value(reading, rule)
    if value is MISSING:
        return None
    if not isinstance(value, list) or len(value) != n_layers:
        raise ConfigError(f"{key} must be a list of {n_layers} objects, one a layer.")
    found = Layout(["full"] * n_layers, key)
    n_heads = reading.integer("n_heads")
    for index, block in enumerate(value):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ConfigError(f"{key}[{index}] must be an object that holds an attention object.")
        where = f"{key}[{index}].attention"
        if attention.get("no_op") is True or attention.get("replace_with_linear") is True:
            found.roles[index] = "none"
            continue
        if attention.get("window_length") is not None:
            found.roles[index] = "sliding"
            found.windows[index] = whole(f"{where}.window_length", attention["window_length"])
        if attention.get("num_key_value_heads") is not None:
            heads = whole(f"{where}.num_key_value_heads", attention["num_key_value_heads"])
            found.kv_heads[index] = heads
        elif attention.get("n_heads_in_group") is not None:
            group = whole(f"{where}.n_heads_in_group", attention["n_heads_in_group"])
            if n_heads is None or n_heads % group:
                raise ConfigError(f"{where}.n_heads_in_group is {group}; it must divide the heads.")
            found.kv_heads[index] = n_heads // group
    return found


def _yoco(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`yoco`: half the layers slide, one is full, and the later ones reuse its cache.

    Every period begins with a recurrent layer; the other layers attend.
    """
    key, value = _value(reading, rule)
    period = whole(key, value)
    half = n_layers // 2
    roles = []
    for layer in range(n_layers):
        if layer % period == 0:
            roles.append("state" if layer <= half else "none")
        else:
            roles.append("sliding" if layer < half else "full" if layer == half + 1 else "shared")
    return Layout(roles)


def _windows(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`windows`: a list of windows, one a layer or repeated to that length; null is a full layer.

    Does not apply where the value is a plain number.
    """
    key, value = _value(reading, rule)
    if not isinstance(value, list):
        return None
    if not value or n_layers % len(value):
        raise ConfigError(
            f"{key} has {len(value)} entries; it must have {n_layers}, or a divisor of that."
        )
    found = Layout(["full"] * n_layers, key)
    for layer in range(n_layers):
        window = value[layer % len(value)]
        if window is not None:
            found.roles[layer] = "sliding"
            found.windows[layer] = whole(f"{key}[{layer % len(value)}]", window)
    return found


def _all(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`all`: the same role for every layer."""
    return Layout([rule["role"]] * n_layers)


def _missing(reading: Reading, rule: Rule, n_layers: int) -> Layout | None:
    """`missing`: nothing said which layers attend, and the family has no rule for it."""
    keys = [key for other in rules(reading) for key in other.get("keys", [])]
    raise ConfigError(f"{keys[0]} is missing; {reading.name} needs one of {', '.join(keys)}.")


OPS: dict[str, Callable[[Reading, Rule, int], Layout | None]] = {
    "names": _names,
    "cycle": _cycle,
    "every": _every,
    "pattern": _pattern,
    "listed": _listed,
    "from": _from,
    "repeat": _repeat,
    "blocks": _blocks,
    "windows": _windows,
    "yoco": _yoco,
    "all": _all,
    "missing": _missing,
}
