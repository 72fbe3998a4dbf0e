"""Reading parameters: defaults, aliases, and the sweeps that set them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from stoker.core.values import Value
from stoker.plan import naming
from stoker.plan.options import Choice, Ladder, Written
from stoker.plan.sweep import Axis, Order, Sweep
from stoker.spec import ranges
from stoker.spec.keys import SWEEP
from stoker.spec.nodes import MappingNode, Node, ScalarNode, SequenceNode
from stoker.spec.problems import listing, suggest
from stoker.spec.reader import Entries, Reader, describe_node

Group = tuple[tuple[str, Value], ...]
"""What one case of an alias sets."""


class Parameters:
    """Everything a file says about parameters, read in this order: alias, default, sweeps."""

    def __init__(self, reader: Reader, exists: Callable[[str], bool], seed: int, draws: int | None) -> None:
        self._reader = reader
        self._exists = exists
        self._seed = seed
        self._draws = draws  # where a sweep has no `_trials`
        self._alias_nodes: dict[str, ScalarNode] = {}
        self._used: set[str] = set()  # aliases that something uses
        self.flawed: set[str] = set()  # parameters that are set, in a way that has a problem
        self.alias: dict[str, dict[str, Group]] = {}
        self.default: dict[str, Value] = {}  # aliases among them already resolved

    # alias

    def read_alias(self, node: Node) -> None:
        """`alias: {size: {small: {layers: 2}, big: {layers: 8}}}`."""
        for name, (key_node, cases_node) in self._reader.entries(node, "alias").items():
            if self._reader.param_name(key_node, "alias") is None:
                continue
            cases = self._reader.entries(cases_node, f"alias.{name}")
            self._alias_nodes[name] = key_node
            self.alias[name] = {case: self._read_case(name, case, found[1]) for case, found in cases.items()}
            self._check_cases(name, cases)
        self._check_nesting()

    def _read_case(self, name: str, case: str, node: Node) -> Group:
        group = []
        for param, (key_node, value_node) in self._reader.entries(node, f"alias.{name}.{case}").items():
            value = self._reader.value(value_node, f"alias.{name}.{case}.{param}")
            if self._reader.param_name(key_node, "parameter") and value is not None:
                group.append((param, value))
        return tuple(sorted(group, key=lambda pair: pair[0]))

    def _check_cases(self, name: str, nodes: Entries) -> None:
        wanted = set(self.alias_params(name))
        if not wanted:
            remedy = f"{name}: {{small: {{layers: 2}}, big: {{layers: 8}}}}"
            self._reader.problem(self._alias_nodes[name], f"alias '{name}' sets no parameter", remedy)
        for case, group in self.alias[name].items():
            missing = sorted(wanted - {param for param, _ in group})
            if missing:
                message = f"alias.{name}.{case} does not set {listing(missing)}, which other cases set"
                self._reader.problem(nodes[case][0], message, "let every case set the same parameters")

    def _check_nesting(self) -> None:
        for name, node in self._alias_nodes.items():
            for inner in set(self.alias_params(name)) & set(self.alias):
                message = f"alias '{name}' sets '{inner}', which is an alias itself"
                self._reader.problem(node, message, "set the parameters instead")

    def alias_params(self, name: str) -> tuple[str, ...]:
        """The parameters that an alias sets."""
        return tuple(dict.fromkeys(param for group in self.alias[name].values() for param, _ in group))

    def check_aliases_used(self) -> None:
        """An alias that nothing uses is most likely misspelt somewhere."""
        for name, node in self._alias_nodes.items():
            if name not in self._used:
                remedy = "use it in a sweep or under default, or delete it"
                self._reader.problem(node, f"alias '{name}' is used by no sweep", remedy)

    # default

    def read_default(self, node: Node) -> None:
        """`default: {data: iwslt14, size: small}`."""
        setters: dict[str, str] = {}
        for name, (key_node, value_node) in self._reader.entries(node, "default").items():
            if self._reader.param_name(key_node, "parameter") is None:
                continue
            choice = self._choice(value_node, name, f"default.{name}")
            if choice is None:
                self._note_flaw(name)
            for param, value in choice.sets if choice else ():
                self.default[param] = value
                self._check_once(setters, param, name, key_node, "default")

    def _note_flaw(self, name: str) -> None:
        """Remember what a broken line would have set, so that it is not called missing as well."""
        self.flawed.update(self.alias_params(name) if name in self.alias else [name])

    def _check_once(self, setters: dict[str, str], param: str, name: str, node: Node, where: str) -> None:
        if param in setters:
            message = f"{where} sets '{param}' twice: by '{setters[param]}' and by '{name}'"
            self._reader.problem(node, message, "keep one")
        setters[param] = name

    # sweeps

    def read_sweep(self, node: Node, stages: tuple[str, ...]) -> Sweep:
        """One document after the first."""
        entries = self._reader.entries(node, "a sweep")
        meta = self._read_meta(entries, stages)
        turns = meta.get("_trials", self._draws) if "_trials" in meta or "_trials" not in entries else 1
        named = {name: nodes for name, nodes in entries.items() if not name.startswith("_")}
        found = [self._read_axis(name, *nodes, turns) for name, nodes in named.items()]
        axes = tuple(axis for axis in found if axis is not None)
        for name, axis in zip(named, found, strict=True):
            if axis is None:
                self._note_flaw(name)
        self._check_axes(axes, entries, complete=len(axes) == len(found))
        set_here = set(chain.from_iterable(axis.ladder.params for axis in axes))
        asked = meta.get("_cmd")
        return Sweep(
            axes=axes,
            base={name: value for name, value in self.default.items() if name not in set_here},
            stages=tuple(stage for stage in stages if not isinstance(asked, tuple) or stage in asked),
            turns=turns
            if isinstance(turns, int) and any(axis.order is not Order.GRID for axis in axes)
            else 1,
            title=str(meta["_title"]) if "_title" in meta else None,
            line=node.start_mark.line + 1,
        )

    def _read_meta(self, entries: Entries, stages: tuple[str, ...]) -> dict[str, object]:
        known, meta = {setting.name: setting for setting in SWEEP}, {}
        for name, (key_node, value_node) in entries.items():
            if name in known:
                meta[name] = known[name].kind.read(self._reader, value_node, name)
            elif name.startswith("_"):
                remedy = suggest(name, known) or "a parameter's name may not begin with _"
                self._reader.problem(key_node, f"unknown key '{name}' in a sweep", remedy)
        for node in self._reader.items(entries["_cmd"][1]) if "_cmd" in entries else ():
            if isinstance(node, ScalarNode) and node.value and node.value not in stages:
                remedy = suggest(str(node.value), stages) or f"stages of this study: {listing(stages)}"
                self._reader.problem(node, f"_cmd: there is no stage '{node.value}'", remedy)
        return {name: value for name, value in meta.items() if value is not None}

    def _check_axes(self, axes: tuple[Axis, ...], entries: Entries, complete: bool) -> None:
        setters: dict[str, str] = {}
        for axis in axes:
            for param in axis.ladder.params:
                self._check_once(setters, param, axis.name, entries[axis.name][0], "this sweep")
        if complete and "_trials" in entries and all(axis.order is Order.GRID for axis in axes):
            remedy = "delete it, or give a parameter a range: `lr: {uniform: [0.1, 1]}`"
            message = "_trials: this sweep has no range or sequence to draw from"
            self._reader.problem(entries["_trials"][0], message, remedy)

    def _read_axis(self, name: str, key_node: ScalarNode, node: Node, turns: object) -> Axis | None:
        if self._reader.param_name(key_node, "parameter") is None:
            return None
        if isinstance(node, MappingNode):
            return self._read_series(name, node, turns)
        ladder = self._written(node, name, name)
        return Axis(name, ladder) if ladder else None

    def _read_series(self, name: str, node: MappingNode, turns: object) -> Axis | None:
        self._used.add(name)
        known = [*ranges.RANGES, *ranges.LISTS]
        entries = self._reader.entries(node, name)
        if len(entries) != 1:
            remedy = f"`{name}: {{uniform: [1, 3]}}` draws; a plain list makes a grid"
            self._reader.problem(node, f"{name}: expected one range, got {len(entries)} keys", remedy)
            return None
        kind, (kind_node, value_node) = next(iter(entries.items()))
        if kind not in known:
            remedy = suggest(kind, known) or f"known: {listing(known)}"
            self._reader.problem(kind_node, f"{name}: unknown range '{kind}'", remedy)
            return None
        if not isinstance(turns, int):
            remedy = "add `_trials: 6` to the sweep, or `search: {trials: 6}` to the study"
            self._reader.problem(node, f"{name}: it is not said how many values to draw", remedy)
            return None
        ladder: Ladder | None
        if kind in ranges.LISTS:
            ladder, order = self._written(value_node, name, f"{name}.{kind}"), ranges.LISTS[kind]
        else:
            ladder, order = self._range(value_node, name, kind, turns), ranges.RANGES[kind].order
        return Axis(name, ladder, order, self._seed) if ladder else None

    def _range(self, node: Node, name: str, kind: str, turns: int) -> Ladder | None:
        takes = f"[{', '.join(ranges.RANGES[kind].names)}]"
        if name in self.alias:
            remedy = f"`{name}: {{choice: [{', '.join(self.alias[name])}]}}` draws among them"
            self._reader.problem(node, f"{name} is an alias: its cases are words, not numbers", remedy)
            return None
        if not isinstance(node, SequenceNode) or len(node.value) != 2:
            self._reader.problem(node, f"{name}: {kind} takes {takes}, got {describe_node(node)}")
            return None
        bounds = [self._reader.value(item, f"{name}.{kind}") for item in node.value]
        if None in bounds:
            return None
        first, second = (ranges.plain_number(bound) for bound in bounds if bound is not None)
        wrong = ranges.flaw(kind, first, second, turns)
        if wrong:
            self._reader.problem(node, f"{name}: {kind}: {wrong}", f"it takes {takes}")
            return None
        return ranges.build(kind, name, first, second, turns)

    def _written(self, node: Node, name: str, what: str) -> Written | None:
        self._used.add(name)
        if isinstance(node, SequenceNode) and not node.value:
            self._reader.problem(node, f"{what}: the list is empty", "give it a value, or delete the line")
        choices = [self._choice(item, name, what) for item in self._reader.items(node)]
        kept = tuple(choice for choice in choices if choice is not None)
        return Written(kept) if kept and len(kept) == len(choices) else None

    def _choice(self, node: Node, name: str, what: str) -> Choice | None:
        self._used.add(name)
        value = self._reader.value(node, what)
        if value is None:
            return None
        part = naming.part(value, self._exists)
        if name not in self.alias:
            return Choice(part, ((name, value),))
        cases: Mapping[str, Group] = self.alias[name]
        if node.value not in cases:
            remedy = suggest(str(node.value), cases) or f"cases of {name}: {listing(list(cases))}"
            self._reader.problem(node, f"{what}: alias '{name}' has no case '{node.value}'", remedy)
            return None
        return Choice(part, cases[str(node.value)])
