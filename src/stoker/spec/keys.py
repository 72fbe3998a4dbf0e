"""Every key of a study file: what it must be and what it does. The docs' reference is made from this."""

from __future__ import annotations

import re
import warnings

from stoker.spec.nodes import Node
from stoker.spec.reader import (
    ANY_TEXT,
    DURATION,
    FLAG,
    TEXT,
    Field,
    Kind,
    Reader,
    either,
    group,
    list_of,
    map_of,
    number,
    one_of,
    simple,
    whole,
)

_DEVICES = re.compile(r"|-1|\d+(,\d+)*|(GPU|MIG)-[\w/-]+(,(GPU|MIG)-[\w/-]+)*")


def slot(raw: str) -> str | None:
    """The GPUs of a slot as CUDA_VISIBLE_DEVICES takes them; None if they cannot be meant."""
    devices = raw.replace(" ", "").split(",")
    return (
        ",".join(devices)
        if _DEVICES.fullmatch(",".join(devices)) and len(set(devices)) == len(devices)
        else None
    )


def _pattern(reader: Reader, node: Node, what: str) -> str | None:
    raw = ANY_TEXT.read(reader, node, what)
    if raw is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = re.compile(raw).groups
    except (re.error, OverflowError, RecursionError) as error:
        reader.problem(node, f"{what}: not a regular expression: {error}")
        return None
    if groups != 1:
        remedy = r"put the number into parentheses: 'BLEU4 = (\S+)'"
        reader.problem(node, f"{what}: a pattern needs exactly one group, this one has {groups}", remedy)
        return None
    return raw


SLOT = simple('GPU indices like 0 or "0,1"', '[0, "1,2"]', lambda value, raw: slot(raw))
MOST_DRAWS = 1_000_000
"""A series is searched turn by turn where nothing better can be done."""

PATTERN = Kind("a regular expression with one group", _pattern)
NAME = r"[A-Za-z_]\w*"
WORD = r"[\w.-]+"
MODULE = simple(
    "a module's name", "torch", lambda value, raw: raw if re.fullmatch(rf"{NAME}(\.{NAME})*", raw) else None
)

_LIMIT = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|unlimited|infinite", re.IGNORECASE)
LIMIT = simple(
    "minutes, hours:minutes:seconds or days-hours",
    "12:00:00",
    lambda value, raw: raw if _LIMIT.fullmatch(raw) else None,
)
"""YAML may read 12:00:00 as a number: the text counts."""

_AGENTS = Field("agents", whole(1), "How many agents to place.", default="1")
_SETUP = Field("setup", list_of(TEXT), "Shell lines to run once on a machine, before its agent starts.")
_PROJECT = Field("project", TEXT, "Google Cloud project.", default="that of your credentials")
_LABELS = Field("labels", map_of(ANY_TEXT, WORD, "team"), "Labels on every resource.")
_ACCOUNT = Field("service_account", TEXT, "The account that the machines act as.")
_BUCKET = Field("bucket", TEXT, "Where code, data, records and results travel.")
_GPU = Field(
    "gpu",
    group(
        Field("type", TEXT, "Accelerator type, such as nvidia-tesla-t4.", required=True),
        Field("count", whole(1), "GPUs of each machine.", default="1"),
    ),
    "GPUs of each machine.",
)

_FILES = (
    Field("include", list_of(TEXT), "Patterns of files to mirror.", default="all"),
    Field("exclude", list_of(TEXT), "Patterns of files to leave out.", default="none"),
    Field("every", DURATION, "How often to look for changed files.", default="60s"),
)

_GCE = group(
    _PROJECT,
    Field("region", TEXT, "Region of the machines."),
    Field("zones", list_of(TEXT), "Zones to use, instead of all of the region."),
    Field("machine", list_of(TEXT), "Machine type, or several acceptable ones."),
    _GPU,
    Field(
        "spot",
        one_of("true", "false", "prefer"),
        "Cheap machines that may be taken away; `prefer` falls back.",
        default="true",
    ),
    _AGENTS,
    Field(
        "fleet",
        one_of("group", "instances"),
        "A managed group that recreates lost machines, or plain ones.",
        default="group",
    ),
    Field("image", TEXT, "Boot image."),
    Field("image_family", TEXT, "Boot image family.", default="a Deep Learning VM"),
    Field("image_project", TEXT, "Project that owns the image."),
    Field(
        "disk",
        group(
            Field("size", whole(10), "Gigabytes.", default="100"),
            Field("type", TEXT, "Disk type.", default="pd-balanced"),
        ),
        "Boot disk.",
    ),
    _SETUP,
    Field(
        "code",
        group(
            Field("include", list_of(TEXT), "Patterns of files to ship.", default="all"),
            Field("exclude", list_of(TEXT), "Patterns of files to leave out."),
        ),
        "The code to ship; `.gitignore` and `.stokerignore` are respected.",
    ),
    Field("data", list_of(TEXT), "Local paths or gs:// prefixes to put on each machine."),
    Field("secrets", list_of(TEXT), "Local variables or files to hand over through Secret Manager."),
    Field("metadata", map_of(ANY_TEXT, WORD, "startup-note"), "Metadata of each machine."),
    _ACCOUNT,
    Field("scopes", list_of(TEXT), "Access scopes of the account."),
    Field("network", TEXT, "Network of the machines.", default="default"),
    _LABELS,
    _BUCKET,
    Field("keep_failed", FLAG, "Hold a machine whose setup failed, to look at it.", default="false"),
    Field("max_hours", number(0), "Longest life of a machine.", default="24"),
)

_SLURM = group(
    Field("partition", TEXT, "Partition."),
    Field("account", TEXT, "Account to charge."),
    Field("qos", TEXT, "Quality of service."),
    Field("time", LIMIT, "Time limit of a job, as sbatch takes it."),
    Field("gpus", ANY_TEXT, "GPUs of a job, as sbatch takes them."),
    Field("cpus", whole(1), "Cores of a job."),
    Field("memory", ANY_TEXT, "Memory of a job, such as 32G."),
    Field("constraint", TEXT, "Features a node must have."),
    Field("exclude", TEXT, "Nodes to avoid."),
    Field(
        "resource",
        either(list_of(SLOT, may_be_empty=False), "auto"),
        'The slots of a job, counted within its own GPUs: `["0,1"]` is one slot with two of them.',
        default="one for each GPU",
    ),
    _AGENTS,
    _SETUP,
    Field("extra", list_of(TEXT), "More #SBATCH options, one per line."),
    Field("renew", FLAG, "Submit the next array while trials remain.", default="false"),
)

_RAY = group(
    Field("address", TEXT, "Address of the cluster.", default="auto"),
    Field("gpus", number(0), "GPUs of an agent.", default="1"),
    Field("cpus", number(0), "Cores of an agent.", default="1"),
    _AGENTS,
    _SETUP,
)

_VERTEX = group(
    _PROJECT,
    Field("region", TEXT, "Region of the jobs."),
    Field("machine", TEXT, "Machine type."),
    _GPU,
    Field("image", TEXT, "Training container."),
    Field("spot", FLAG, "Cheap machines that may be taken away.", default="false"),
    _AGENTS,
    _ACCOUNT,
    _LABELS,
    _BUCKET,
)

_STOP = group(
    Field("method", one_of("asha"), "How trials are compared at a rung.", required=True),
    Field("step", TEXT, "The progress that counts steps, such as epochs.", required=True),
    Field("first", whole(1), "Steps to the first rung.", default="1"),
    Field(
        "factor",
        whole(2),
        "One of this many trials passes a rung; the next rung is this many times further.",
        default="3",
    ),
)

STAGE = (
    Field("command", TEXT, "The command.", required=True),
    Field(
        "slot",
        one_of("none"),
        "`none`: the stage does not hold the GPU while it runs.",
        default="it holds its slot",
    ),
    Field("timeout", DURATION, "The stage fails when it runs longer.", default="none"),
)

SWEEP = (
    Field("_title", TEXT, "A name for the sweep; `-t` selects by it."),
    Field("_cmd", list_of(TEXT, may_be_empty=False), "Run only these stages.", default="all stages"),
    Field(
        "_trials",
        whole(1, MOST_DRAWS),
        "How many values to draw for the ranges and sequences of this sweep.",
        default="`search.trials`",
    ),
)

SETTINGS = (
    Field(
        "resource",
        either(list_of(SLOT, may_be_empty=False), "auto"),
        "The slots of this machine: the GPUs of each. `4` is GPU 4, not four of them. Repeats share a GPU.",
        default="auto",
    ),
    Field(
        "objective",
        group(
            Field("metric", TEXT, "The metric that says how good a trial is.", required=True),
            Field("goal", one_of("max", "min"), "Whether more is better, or less.", required=True),
        ),
        "What the study is after.",
    ),
    Field(
        "metrics",
        map_of(PATTERN, WORD, "val_loss"),
        "Metrics to read from logs: a pattern each. The group of its last match is the value.",
    ),
    Field(
        "search",
        group(
            Field("method", one_of("random", "tpe"), "How values are drawn from ranges.", default="random"),
            Field("trials", whole(1, MOST_DRAWS), "How many values to draw, where a sweep has no `_trials`."),
            Field("seed", whole(0), "Another seed draws other values.", default="0"),
            Field("stop", _STOP, "Stop trials early that fall behind.", later=True),
        ),
        "How ranges are searched.",
    ),
    Field(
        "retry",
        whole(0),
        "How often a trial may fail and be tried again. Preemptions do not count.",
        default="0",
    ),
    Field(
        "limits",
        group(
            Field("hours", number(0), "Stop after so many hours."),
            Field("cost", number(0), "Stop before so many dollars are spent."),
            Field("trials", whole(1), "Run at most so many trials."),
        ),
        "Where to stop, whatever is left.",
        later=True,
    ),
    Field("env", map_of(ANY_TEXT, NAME, "OMP_NUM_THREADS"), "Environment variables of every stage."),
    Field(
        "preload",
        list_of(MODULE),
        "Modules to import once per slot, so that trials of Python scripts start warm.",
    ),
    Field(
        "warm",
        FLAG,
        "Serve many trials in one process, for scripts that ask for their trials.",
        default="false",
    ),
    Field("files", group(*_FILES), "What is mirrored to a remote store."),
    Field("archive", whole(1), "Keep the best so many models over all iterations.", later=True),
    Field("notify", list_of(TEXT), "Where to say that the study is done.", later=True),
    Field(
        "engine",
        group(
            Field("slurm", list_of(_SLURM), "Slurm: one shape of job, or a list of shapes."),
            Field("gce", _GCE, "Google Compute Engine.", later=True),
            Field("ray", _RAY, "A Ray cluster.", later=True),
            Field("vertex", _VERTEX, "Vertex AI.", later=True),
        ),
        "Settings of the places to run, one section each.",
    ),
)
