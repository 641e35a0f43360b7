"""Look-ups in a config: which key gives a quantity, and whether its value is allowed."""

from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.tables import table

MISSING: Any = object()
LARGEST = 2**31  # of any size in a config
CORE = ("n_layers", "n_heads", "hidden")
"""Sizes whose defaults count only in a nested config: files leave out nothing at the top."""


class Reading:
    """One config under one family's entry of the table; collects notes and the keys it read."""

    def __init__(
        self, config: dict[str, Any], outer: dict[str, Any], family: dict[str, Any], name: str
    ) -> None:
        """`config` describes the language model; `outer` is the file, perhaps the same object."""
        self.config = config
        self.outer = outer
        self.family = family
        self.name = name
        self.notes: list[str] = []
        self.used: set[str] = set()

    def find(self, path: str) -> Any:
        """The value at a dotted path, MISSING where there is none."""
        value: Any = self.config
        for key in path.split("."):
            if not isinstance(value, dict) or key not in value:
                return MISSING
            value = value[key]
        self.used.add(path)
        return value

    def first(self, paths: list[str]) -> tuple[str, Any]:
        """The first of some paths that is there and not null; else the first null; else MISSING."""
        empty = None
        for path in paths:
            value = self.find(path)
            if value is MISSING:
                continue
            if value is not None:
                return path, value
            empty = empty or path
        return (empty, None) if empty else (paths[0] if paths else "", MISSING)

    def field(self, name: str) -> tuple[str, Any]:
        """A quantity of the table's `fields`: the key that gives it, and the raw value.

        None where the file says null; MISSING where neither the file nor the family gives one.
        Raises ConfigError where two keys of the general list give different numbers.
        """
        own = self.family.get("fields", {}).get(name)
        paths = table("families")["fields"][name] if own is None else own
        key, value = self.first(paths)
        if own is None and isinstance(value, int):
            for other in paths:
                second = self.find(other)
                if isinstance(second, list):  # one number per layer says more than one for all
                    return other, second
                if isinstance(second, int) and second != value:
                    raise ConfigError(
                        f"{key} is {shown(value)} but {other} is {shown(second)}; "
                        f"they must be equal."
                    )
        if value is MISSING and (name not in CORE or self.config is not self.outer):
            default = self.family.get("defaults", {}).get(name)
            if default is not None:
                self.note(f"{key} is not in the file; {self.name} takes {default}.")
                return key, default
        return key, value

    def integer(self, name: str, low: int = 1) -> int | None:
        """A quantity as a whole number; None where it is null or not given."""
        key, value = self.field(name)
        return None if value is None or value is MISSING else whole(key, value, low)

    def per_layer(self, name: str, n_layers: int) -> list[int] | int | None:
        """A quantity given once or as a list with one number for each layer."""
        key, value = self.field(name)
        if value is None or value is MISSING:
            return None
        if not isinstance(value, list):
            return whole(key, value)
        if len(value) != n_layers:
            raise ConfigError(f"{key} has {len(value)} entries; it must have {n_layers}.")
        return [whole(f"{key}[{index}]", item) for index, item in enumerate(value)]

    def required(self, name: str) -> int:
        """A quantity that nothing can be said without; raises ConfigError if it is not there."""
        value = self.integer(name)
        if value is None:
            raise ConfigError(f"{self.field(name)[0]} is missing; it must be a whole number.")
        return value

    def holds(self, conditions: dict[str, Any]) -> bool:
        """Whether every key has the value that the table asks for; missing keys take defaults.

        Raises ConfigError for a switch that is neither true, false nor null.
        """
        for path, wanted in conditions.items():
            value = self.find(path)
            if value is MISSING or value is None:
                value = self.family.get("switches", {}).get(path)
            if value is not None and not isinstance(value, type(wanted)):
                kind = "true or false" if isinstance(wanted, bool) else "a string"
                raise ConfigError(f"{path} is {shown(value)}; it must be {kind}.")
            if value != wanted:
                return False
        return True

    def check_needs(self, rule: dict[str, Any]) -> None:
        """Raise ConfigError where a rule of `kv` needs a number of KV heads that is not there."""
        if "needs" in rule and self.field("n_kv_heads")[1] in (None, MISSING):
            where = ", ".join(rule.get("when", {})) or self.name
            raise ConfigError(f"{rule['needs']} is missing; {where} needs it.")

    def note(self, sentence: str) -> None:
        """Keep a sentence for the reader of the result, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def whole(key: str, value: Any, low: int = 1, high: int = LARGEST) -> int:
    """The value if it is a whole number in the range; a ConfigError that names the key if not."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(
            f"{key} is {shown(value)}; it must be a whole number from {low} to {high}."
        )
    return value
