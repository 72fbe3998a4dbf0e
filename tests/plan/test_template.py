"""Commands with holes: what is a hole, what is left alone, what is refused."""

from __future__ import annotations

import pytest

from stoker.core.values import Spelled, Value
from stoker.plan.template import parse

PARAMS: dict[str, Value] = {
    "p": "v",
    "lr": Spelled("1e-3"),
    "n": -1,
    "on": True,
    "off": False,
    "early-stop": True,
    "f": 0.1,
}


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("run {p} [lr] {n} {f}", "run v --lr 1e-3 -1 0.1"),
        ("run [on] [off] [early-stop]", "run --on --early-stop"),
        ("run [off] x", "run x"),
        ("[off] run", "run"),
        ("[off] [off] run [off] [off]", "run"),
        ("run {n} [off]>log", "run -1 >log"),
        ("run {n}[off]>log", "run '-1'>log"),
        ("run [off]{p}", "run v"),
        ("run a\\ [off] b", "run a\\  b"),
        ("run {p}{p}", "run 'v''v'"),
        ("run \\${p}", "run \\$'v'"),
        ("run {{p}} [[p]] {{{p}}}", "run {p} [p] {{p}}"),
        ('run "{note: {p}}" {a,b} {1..3} [ -f x ]', 'run "{note: v}" {a,b} {1..3} [ -f x ]'),
        ("run ${HOME} ${{p}} $HOME", "run ${HOME} ${p} $HOME"),
        ("awk '{print $1}' f", "awk '{print $1}' f"),
        ("run\n  {p}\n\n  {n}\n", "run v -1"),
        ("run \\\n  {p} \\\n", "run v"),
        ("run 'a \\\\\n b'", "run 'a \\\\ b'"),
        ("find . -exec ls {} \\;", "find . -exec ls {} \\;"),
        ("for i in 1 2; do run $i {p}; done", "for i in 1 2; do run $i v; done"),
    ],
)
def test_rendering(template: str, command: str) -> None:
    parsed = parse(template)
    assert parsed.flaws == ()
    assert parsed.render(PARAMS) == command


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("echo `run {p}`", "inside backticks"),
        ('echo "`run {p}`"', "inside backticks"),
        ("echo $(( {n} + 1 ))", "inside ((…))"),
        ("(( {n} > 1 )) && run", "inside ((…))"),
        ("for ((i=0; i<{n}; i++)); do run; done", "inside ((…))"),
        ("echo $[{n}+1]", "inside ((…))"),
        ("echo ${x:-{p}}", "inside ${…}"),
        ("echo $'{p}'", "inside $'…'"),
        ("run # {p}", "this comment hides"),
        ("run {p} # done", "this comment hides"),
        ("[[ {n} -gt 3 ]] && run", "inside [[ … ]]"),
        ("arr[{n}]=1", "inside name[…]"),
        ("run $[a[1]+{n}]", "inside ((…))"),
        ("run $(x=({p}); run)", "too intricate"),
        ("run $${p}", "sticks to the shell variable"),
        ("run \\{p}", "backslash before {p}"),
        ('run "\\{p}"', "backslash before {p}"),
        ("run $x[p]", "sticks to the shell variable"),
        ("cat <<END {p}", "here-document"),
        ("cat <<-END", "here-document"),
        ("echo it's {p}", "' is missing"),
        ('echo "{p}', '" is missing'),
        ("echo $(run {p}", ") is missing"),
        ('echo "$(case a in a) run {p};; esac)"', "too intricate"),
        ("echo \"${x:-'}\" {p} '", "too intricate"),
        ("run {p} [p]", "stand in one command"),
    ],
)
def test_refusals(template: str, message: str) -> None:
    assert any(message in flaw.message for flaw in parse(template).flaws)


@pytest.mark.parametrize(
    "template",
    [
        "cat <<< {p}",
        "echo $((1 << 2)) {p}",
        "echo 'a << b' {p}",
        "[[ -f x ]] && run {p}",
        "run \\${p}",
        "x=(a {p})",
    ],
)
def test_what_only_looks_wrong_is_accepted(template: str) -> None:
    assert parse(template).flaws == ()
