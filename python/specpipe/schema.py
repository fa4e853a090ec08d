"""The definition of the products, from the same texts that the programs have (schemas/README)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Column:
    """Column of a table: accepted types, unit, meaning."""

    name: str
    types: Tuple[str, ...]
    units: str
    required: bool
    meaning: str


@dataclass(frozen=True)
class Item:
    """A group, dataset or table at a place; ``<word>`` in the path stands for any one name."""

    kind: str  # "group", "data" or "table"
    block: str
    version: str
    path: str
    types: Tuple[str, ...] = ()
    dims: Tuple[str, ...] = ()
    units: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)
    attrs: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    words: Tuple[str, ...] = ()  # required, finite, nonnegative, increasing, scale, raw
    columns: Dict[str, Column] = field(default_factory=dict)
    meaning: str = ""

    def parts(self) -> List[str]:
        """Names along the path."""
        return self.path.strip("/").split("/")

    def matches(self, path: str) -> bool:
        """True when the path is this item's, with any names in place of ``<word>``."""
        have, want = path.strip("/").split("/"), self.parts()
        return len(have) == len(want) and all(w.startswith("<") or w == h for h, w in zip(have, want))


def _value(words: List[str], name: str) -> str:
    return next((w[len(name) + 1 :] for w in words if w.startswith(name + "=")), "")


def _flags(text: str) -> Dict[str, int]:
    return {name: int(bit) for name, bit in (pair.split(":") for pair in text.split(",") if pair)}


def _attrs(text: str) -> Dict[str, Tuple[str, ...]]:
    found = {}
    for pair in text.split(","):
        name, _, values = pair.partition(":")
        if name:
            found[name] = tuple(v for v in values.split("|") if v)
    return found


_PLAIN = ("required", "finite", "nonnegative", "increasing", "scale", "raw")


def _parse(text: str) -> List[Item]:
    block = version = ""
    items: List[Item] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        head, _, meaning = line.partition(" : ")
        word = head.split()
        if word[0] == "block":
            block, version = word[1], word[2]
            continue
        if word[0] == "col":
            items[-1].columns[word[1]] = Column(
                word[1], tuple(word[2].split("|")), _value(word[3:], "units"), "required" in word[3:], meaning.strip()
            )
            continue
        place = re.search(r"\[([^]]*)\]", head)
        rest = word[2:]
        items.append(
            Item(
                kind=word[0],
                block=block,
                version=version,
                path=word[1],
                types=tuple(word[2].split("|")) if word[0] == "data" else (),
                dims=tuple(place.group(1).split(",")) if place else (),
                units=_value(rest, "units"),
                flags=_flags(_value(rest, "flags")),
                attrs=_attrs(_value(rest, "attrs")),
                words=tuple(w for w in rest if w in _PLAIN),
                meaning=meaning.strip(),
            )
        )
    return items


@lru_cache(maxsize=None)
def items() -> Tuple[Item, ...]:
    """All groups, datasets and tables of all blocks."""
    found: List[Item] = []
    for path in sorted((Path(__file__).parent / "schemas").glob("*.schema")):
        found += _parse(path.read_text())
    return tuple(found)


@lru_cache(maxsize=None)
def find(path: str) -> Optional[Item]:
    """Item for a path such as ``/spectra/b/flux``, or None. Names go before ``<word>``."""
    matching = [it for it in items() if it.matches(path)]
    return min(matching, key=lambda it: [p.startswith("<") for p in it.parts()]) if matching else None


@lru_cache(maxsize=None)
def blocks() -> Mapping[str, str]:
    """Version of each block that this package knows."""
    return {it.block: it.version for it in items()}
