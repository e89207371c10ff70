"""The catalogue of methods and parts by name; ``register`` adds one of your own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from idiolect import parts
from idiolect.core import Method, Part
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, unknown_name
from idiolect.methods import (
    apfl,
    apple,
    cfl,
    ditto,
    fedala,
    fedamp,
    fedas,
    fedavg,
    fedaws,
    fedbabu,
    fedbn,
    fedcac,
    fedcp,
    fedcurv,
    feddbe,
    feddf,
    feddistill,
    feddml,
    feddyn,
    fedem,
    fedfomo,
    fedfu,
    fedgen,
    fedgh,
    fedkd,
    fedlc,
    fedmmd,
    fednova,
    fedntd,
    fedopt,
    fedpac,
    fedper,
    fedphp,
    fedproto,
    fedprox,
    fedrep,
    fedrod,
    fedrs,
    flda,
    floco,
    gpfl,
    ifca,
    knn_per,
    lg_fedavg,
    local,
    map,
    moon,
    perfedavg,
    persfl,
    pfedhn,
    pfedme,
    pfedsim,
    scaffold,
    scamap,
    scars,
    superfed,
)
from idiolect.own_code import load_plugins

__all__ = [
    "BUILT_IN",
    "METHODS",
    "PARTS",
    "Entry",
    "find",
    "identifier",
    "label",
    "names",
    "register",
    "without_classes",
]

PARTS: dict[str, Callable[..., Part]] = {name: getattr(parts, name) for name in parts.__all__}


class Entry(NamedTuple):
    """A method of the catalogue: its published name, its factory, and its presets by name."""

    label: str
    make: Callable[..., Method]
    presets: dict[str, dict[str, Any]] = {}


METHODS: dict[str, Entry] = {
    "local": Entry("Local", local.local),
    "fedavg": Entry("FedAvg", fedavg.fedavg),
    "fedavg_lu": Entry("FedAvg-LU", fedavg.fedavg_lu),
    "fedprox": Entry("FedProx", fedprox.fedprox, fedprox.presets),
    "fedprox_lu": Entry("FedProx-LU", fedprox.fedprox_lu),
    "fedmmd": Entry("FedMMD", fedmmd.fedmmd, fedmmd.presets),
    "scaffold": Entry("SCAFFOLD", scaffold.scaffold, scaffold.presets),
    "feddf": Entry("FedDF", feddf.feddf, feddf.presets),
    "fedavgm": Entry("FedAvgM", fedopt.fedavgm, fedopt.fedavgm_presets),
    "fedadagrad": Entry("FedAdagrad", fedopt.fedadagrad, fedopt.fedadagrad_presets),
    "fedadam": Entry("FedAdam", fedopt.fedadam, fedopt.moments_presets),
    "fedyogi": Entry("FedYogi", fedopt.fedyogi, fedopt.moments_presets),
    "fednova": Entry("FedNova", fednova.fednova),
    "fedaws": Entry("FedAwS", fedaws.fedaws),
    "feddyn": Entry("FedDyn", feddyn.feddyn),
    "fedcurv": Entry("FedCurv", fedcurv.fedcurv),
    "moon": Entry("MOON", moon.moon, moon.presets),
    "fedper": Entry("FedPer", fedper.fedper, fedper.presets),
    "fedrep": Entry("FedRep", fedrep.fedrep, fedrep.presets),
    "lg_fedavg": Entry("LG-FedAvg", lg_fedavg.lg_fedavg),
    "flda": Entry("FLDA", flda.flda),
    "fedfu": Entry("FedFu", fedfu.fedfu),
    "feddml": Entry("FedDML", feddml.feddml),
    "apfl": Entry("APFL", apfl.apfl),
    "pfedme": Entry("pFedMe", pfedme.pfedme, pfedme.presets),
    "perfedavg_fo": Entry("Per-FedAvg (FO)", perfedavg.perfedavg_fo, perfedavg.fo_presets),
    "perfedavg_hf": Entry("Per-FedAvg (HF)", perfedavg.perfedavg_hf, perfedavg.hf_presets),
    "fedproto": Entry("FedProto", fedproto.fedproto, fedproto.presets),
    "ditto": Entry("Ditto", ditto.ditto, ditto.presets),
    "fedrod": Entry("FedROD", fedrod.fedrod, fedrod.presets),
    "fedrs": Entry("FedRS", fedrs.fedrs, fedrs.presets),
    "dittors": Entry("DittoRS", ditto.dittors, ditto.dittors_presets),
    "scars": Entry("ScaRS", scars.scars, scars.presets),
    "fedphp": Entry("FedPHP", fedphp.fedphp, fedphp.presets),
    "map": Entry("MAP", map.map_, map.presets),
    "scamap": Entry("ScaMAP", scamap.scamap, scamap.presets),
    "persfl": Entry("PersFL", persfl.persfl, persfl.presets),
    "persfl_gd": Entry("PersFL-GD", persfl.persfl_gd, persfl.gd_presets),
    "superfed_mm": Entry("SuPerFed-MM", superfed.superfed_mm, superfed.presets),
    "superfed_lm": Entry("SuPerFed-LM", superfed.superfed_lm, superfed.presets),
    "fedbabu": Entry("FedBABU", fedbabu.fedbabu, fedbabu.presets),
    "fedbn": Entry("FedBN", fedbn.fedbn),
    "fedala": Entry("FedALA", fedala.fedala, fedala.presets),
    "fedas": Entry("FedAS", fedas.fedas),
    "feddbe": Entry("FedDBE", feddbe.feddbe, feddbe.presets),
    "gpfl": Entry("GPFL", gpfl.gpfl, gpfl.presets),
    "fedcp": Entry("FedCP", fedcp.fedcp, fedcp.presets),
    "fedlc": Entry("FedLC", fedlc.fedlc),
    "fedntd": Entry("FedNTD", fedntd.fedntd, fedntd.presets),
    "fedamp": Entry("FedAMP", fedamp.fedamp, fedamp.presets),
    "fedfomo": Entry("FedFomo", fedfomo.fedfomo),
    "fedpac": Entry("FedPAC", fedpac.fedpac, fedpac.presets),
    "pfedhn": Entry("pFedHN", pfedhn.pfedhn),
    "fedem": Entry("FedEM", fedem.fedem, fedem.presets),
    "pfedsim": Entry("pFedSim", pfedsim.pfedsim, pfedsim.presets),
    "fedgh": Entry("FedGH", fedgh.fedgh),
    "feddistill": Entry("FedDistill", feddistill.feddistill),
    "fedcac": Entry("FedCAC", fedcac.fedcac, fedcac.presets),
    "cfl": Entry("CFL", cfl.cfl, cfl.presets),
    "knn_per": Entry("kNN-Per", knn_per.knn_per, knn_per.presets),
    "ifca": Entry("IFCA", ifca.ifca, ifca.presets),
    "apple": Entry("APPLE", apple.apple, apple.presets),
    "fedgen": Entry("FedGen", fedgen.fedgen, fedgen.presets),
    "fedkd": Entry("FedKD", fedkd.fedkd, fedkd.presets),
    "floco": Entry("Floco", floco.floco, floco.presets),
}

ALIASES = {"fml": "feddml", "fd": "feddistill"}  # other names of methods, and what they are listed under
BUILT_IN = frozenset((*METHODS, *PARTS))  # what every process knows


def names() -> list[str]:
    load_plugins()
    return list(METHODS)


def without_classes() -> list[str]:
    """Returns the methods that, with their default options, serve tasks without classes such as regression.

    >>> "ditto" in without_classes(), "fedrs" in without_classes()
    (True, False)
    """
    return [name for name, entry in METHODS.items() if not entry.make().needs_classes]


def label(text: str) -> str:
    """Returns how a method is called in tables: its published name, or a composition as it was written.

    >>> label("superfed-mm(phase_one=0.5)")
    'SuPerFed-MM'
    """
    name = identifier(text.partition("(")[0])
    return METHODS[name].label if name in METHODS and "+" not in text else text


def find(name: str) -> tuple[str, Entry]:
    """Returns the name that a method is listed under, and its entry."""
    if identifier(name) not in METHODS:
        load_plugins()
    if identifier(name) not in METHODS:
        raise unknown_name("method", name, METHODS, "`idiolect methods` lists the methods")
    return identifier(name), METHODS[identifier(name)]


def register(name: str, make: Callable[..., Method | Part], label: str | None = None) -> None:
    """Makes a method or a part of your own known by name, as if it were in the package.

    The keyword arguments of ``make`` are its options.  A method is then compared by its name, and a part added to
    any method: ``"fedavg + mine(weight=0.1)"``.  A finished run is known by the method's name, all its options and the
    text of ``make``, with what it names in its own module: changed code makes another run.

    Args:
        name: lower_snake, not taken yet; a part is called the same.
        make: returns a ``Method`` or a ``Part`` when it is called without arguments.
        label: how a method is called in tables; its name unless given.

    >>> from idiolect.core import chain
    >>> from idiolect.methods import method
    >>> register("prox_twice", lambda weight=0.1: chain(method("fedprox"), parts.fine_tune(2)))
    >>> method("prox_twice").headline
    'LU'
    >>> del METHODS["prox_twice"]
    """
    if name in METHODS or name in PARTS or name in ALIASES:
        raise UserError(f"{name} is a method or part already; choose another name")
    if not (isinstance(name, str) and name.isidentifier() and name == identifier(name)):
        raise UserError(f"{name!r} cannot name a method or part; use small letters, digits and underscores")
    made = _made(name, make)
    if isinstance(made, Method):
        METHODS[name] = Entry(label or name, cast("Callable[..., Method]", make))
    elif isinstance(made, Part) and made.name == name:
        PARTS[name] = keeps_options(cast("Callable[..., Part]", make))
    elif isinstance(made, Part):
        raise UserError(f"the part registered as {name} calls itself {made.name}; give both one name")
    else:
        raise UserError(f"{name} must make a Method or a Part, it made {type(made).__name__}")


def register_part(name: str, make: Callable[..., Part]) -> None:
    """Makes a part of your own known by name, so that it can be added to any method: ``"fedavg + mine(weight=0.1)"``.

    Args:
        name: lower_snake, not taken yet; the part is called the same.
        make: returns the ``Part`` when it is called without arguments; its keyword arguments are the options.

    >>> from idiolect.methods import method
    >>> register_part("nothing", lambda: Part("nothing"))
    >>> method("fedavg + nothing").parts[1].name
    'nothing'
    >>> del PARTS["nothing"]
    """
    if isinstance(made := _made(name, make), Method):
        raise UserError(f"{name} makes the method {made.name}, not a part; use register")
    register(name, make)


def _made(name: str, make: Callable[..., Any]) -> Any:
    """Returns what a factory makes without arguments, as the options of a method or part all have defaults."""
    if not callable(make):
        raise UserError(f"{name} needs a function that makes it, not {make!r}")
    for key, parameter in inspect.signature(make).parameters.items():
        if parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise UserError(f"{name}: option {key} of its function needs a default")
    return make()


def identifier(name: str) -> str:
    """Returns the name that a method or part is listed under, however it was written.

    >>> identifier("SuPerFed-MM"), identifier("FML")
    ('superfed_mm', 'feddml')
    """
    name = name.strip().lower().replace("-", "_")
    return ALIASES.get(name, name)
