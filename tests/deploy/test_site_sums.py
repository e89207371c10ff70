"""What a site does in a secure sum, asked by a server that lies, repeats and mixes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.keys import private_key, write_key_pair
from idiolect.deploy.secure_sums import WORD, Secrets
from idiolect.deploy.site_sums import MASKED, SiteSums
from idiolect.errors import UserError

NAMES = ["site-0", "site-1", "site-2", "site-3"]
WORDS = np.arange(4, dtype=WORD)


class Server:
    """A server that asks the steps of a sum honestly, and lets tests change what it says."""

    def __init__(
        self, sites: dict[str, SiteSums], session: str = "one", what: str = "uploads of round 1"
    ) -> None:
        self.sites, self.session = sites, session
        self.keys = {name: site.begin(session, what, "model", WORDS) for name, site in sites.items()}
        self.shares: dict[str, dict[str, str]] = {}

    def ask(self, name: str, kind: str, **said: Any) -> dict[str, Any]:
        header, tensors = self.sites[name].answer({"kind": kind, "session": self.session, **said})
        return {**header, **tensors}

    def share(self, name: str = "site-0", **changes: Any) -> dict[str, Any]:
        return self.ask(name, "share", **{"keys": self.keys, **changes})

    def mask(self, name: str = "site-0", **changes: Any) -> dict[str, Any]:
        for one in self.sites:
            self.shares.setdefault(one, {})
            self.shares[one] = self.shares[one] or self.share(one)["shares"]
        return self.ask(name, "mask", shares=self.given(name), **changes)

    def given(self, name: str) -> dict[str, str]:
        return {one: self.shares[one][name] for one in self.sites if one != name}

    def unmask(self, *present: str, name: str = "site-0") -> dict[str, Any]:
        self.mask(name)
        return self.ask(name, "unmask", present=list(present or self.sites))


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, SiteSums]:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    for name in NAMES:
        write_key_pair(tmp_path / name)
    found = {}
    for name in NAMES:
        peers = tmp_path / name / "peers"
        peers.mkdir()
        for other in set(NAMES) - {name}:
            (peers / f"{other}.pub").write_bytes((tmp_path / other / "key.pub").read_bytes())
        key, folder = private_key(tmp_path / name / "key"), tmp_path / name / "private"
        found[name] = SiteSums(folder, peers, name, key, threshold=3, most=4, era=lambda: "")
    return found


def refused(work: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        work()
    return str(caught.value)


def test_steps_in_order_are_answered(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    assert (server.mask()[MASKED].numpy().view(WORD) != WORDS).all()
    found = server.unmask("site-0", "site-1", "site-3")
    assert sorted(found["own"]) == ["site-0", "site-1", "site-3"] and sorted(found["pairs"]) == ["site-2"]


def test_server_in_the_middle_is_refused(sites: dict[str, SiteSums]) -> None:
    """Keys that the server made itself, with its own signature, or with one of another sum."""
    server = Server(sites)
    public = Secrets.new().public
    forged = {"cipher": public.cipher.hex(), "mask": public.mask.hex()}
    own = ec.generate_private_key(ec.SECP256R1())
    earlier = Server(sites, session="earlier").keys["site-1"]
    server = Server(sites)
    for keys in (
        {**forged, "signature": public.signed("one", own).hex()},
        {**forged, "signature": server.keys["site-1"]["signature"]},
        {**forged, "signature": server.keys["site-2"]["signature"]},
        earlier,
        {**server.keys["site-1"], "mask": forged["mask"]},
    ):
        said = refused(lambda keys=keys: server.share(keys={**server.keys, "site-1": keys}))
        assert said == (
            "the keys that the server gives as those of site-1 are not signed by site-1 for this sum and the same "
            "model"
        )
    assert "other keys of site-0" in refused(
        lambda: server.share(keys={**server.keys, "site-0": server.keys["site-1"]})
    )
    without = {name: keys for name, keys in server.keys.items() if name != "site-0"}
    assert "other keys of site-0" in refused(lambda: server.share(keys=without))
    stranger = {**forged, "signature": public.signed("one", own).hex()}
    for name in ("site-9", "../site-1/key"):
        said = refused(lambda name=name: server.share(keys={**server.keys, name: stranger}))
        assert "site-0 does not know the key of" in said
    assert "no key, share or signature" in refused(
        lambda: server.share(keys={**server.keys, "site-1": {**forged, "signature": "xyz"}})
    )


def test_sums_of_too_few_or_too_many_are_refused(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    two = {name: server.keys[name] for name in NAMES[:2]}
    assert "takes part in sums of 3 to 4" in refused(lambda: server.share(keys=two))
    for name in NAMES:
        server.shares[name] = server.share(name)["shares"]
    given = {"site-1": server.shares["site-1"]["site-0"]}
    assert "a sum of 2 sites" in refused(lambda: server.ask("site-0", "mask", shares=given))
    server.mask()
    for present in (["site-0", "site-1"], ["site-0"] * 3):
        assert "takes part in sums of" in refused(lambda present=present: server.unmask(*present))


def test_tampered_and_replayed_shares_are_refused(sites: dict[str, SiteSums]) -> None:
    before = Server(sites, session="before")
    before.mask()
    server = Server(sites)
    for name in NAMES:
        server.shares[name] = server.share(name)["shares"]
    sealed = server.shares["site-1"]["site-0"]
    for wrong in (
        f"{int(sealed[:2], 16) ^ 1:02x}{sealed[2:]}",
        before.shares["site-1"]["site-0"],
        server.shares["site-1"]["site-2"],
        server.shares["site-2"]["site-0"],
    ):
        said = refused(
            lambda w=wrong: server.ask("site-0", "mask", shares={**server.given("site-0"), "site-1": w})
        )
        assert said == "what the server gives as the shares of site-1 is not what site-1 made for this sum"
    mine = {**server.given("site-0"), "site-0": sealed}
    assert "has no keys in this sum" in refused(lambda: server.ask("site-0", "mask", shares=mine))
    assert MASKED in server.mask()


@pytest.mark.parametrize(
    ("what", "model"), [("uploads of round 1", "another model"), ("uploads of round 2", "model")]
)
def test_sites_that_were_sent_different_models_or_rounds_make_no_sum(
    sites: dict[str, SiteSums], what: str, model: str
) -> None:
    server = Server(sites)
    server.keys["site-1"] = sites["site-1"].begin("one", what, model, WORDS)
    said = refused(server.share)
    assert "as those of site-1 are not signed by site-1 for this sum and the same model" in said
    assert "as those of site-0 are not" in refused(lambda: server.share("site-1"))


def test_site_reveals_one_of_two_shares_whatever_it_is_asked(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    first = server.unmask("site-0", "site-1", "site-2")
    again = server.ask("site-0", "unmask", present=["site-0", "site-1", "site-2"])
    assert again == first  # an answer that was lost is given again
    for present in (NAMES, ["site-0", "site-1", "site-3"]):
        said = refused(lambda present=present: server.ask("site-0", "unmask", present=present))
        assert "it answers one" in said
    assert "has helped to make this sum already" in refused(server.mask)
    for name in NAMES:
        assert (name in first["own"]) != (name in first["pairs"])


def test_each_step_is_answered_for_one_request(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    first = server.share()
    assert server.share() == first
    three = {name: server.keys[name] for name in NAMES[:3]}
    assert "it answers one" in refused(lambda: server.share(keys=three))
    masked = server.mask()[MASKED]
    assert (server.mask()[MASKED] == masked).all()
    fewer = {name: share for name, share in server.given("site-0").items() if name != "site-3"}
    assert "it answers one" in refused(lambda: server.ask("site-0", "mask", shares=fewer))


def test_steps_out_of_order_or_of_another_sum_are_refused(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    assert "before the ones that come first" in refused(lambda: server.ask("site-0", "mask", shares={}))
    server.share()
    assert "before the ones that come first" in refused(lambda: server.ask("site-0", "unmask", present=NAMES))
    sites["site-0"].begin("two", "uploads of round 2", "model", WORDS)
    assert "takes no part in the sum" in refused(server.share)


def test_own_site_must_be_in_the_sum_and_strangers_not(sites: dict[str, SiteSums]) -> None:
    server = Server(sites)
    server.mask()
    for present in (NAMES[1:], [*NAMES, "site-9"]):
        assert "has no part in this sum" in refused(
            lambda present=present: server.ask("site-0", "unmask", present=present)
        ).replace("have no part", "has no part")


def test_restart_between_steps_changes_nothing(sites: dict[str, SiteSums]) -> None:
    """A site that is opened anew answers from its file; a damaged file costs the sum and nothing else."""
    server = Server(sites)
    first = server.share()
    sites["site-0"] = SiteSums(**vars(sites["site-0"]))
    assert server.share() == first
    masked = server.mask()[MASKED]
    sites["site-0"] = SiteSums(**vars(sites["site-0"]))
    assert (server.mask()[MASKED] == masked).all()
    path = sites["site-0"].folder / "sum.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    assert "takes no part in the sum" in refused(server.unmask)


def test_no_secret_is_left_when_a_sum_is_made(sites: dict[str, SiteSums]) -> None:
    server, file = Server(sites), sites["site-0"].folder / "sum.safetensors"
    server.mask()
    facts, words = sites["site-0"]._remembered()
    assert len(words) == 4 and len(facts["secrets"]) == 3
    assert file.stat().st_mode & 0o077 == 0
    held = [*facts["secrets"], *(share for shares in facts["shares"].values() for share in shares)]
    told = server.unmask("site-0", "site-1", "site-2")
    left = file.read_bytes().decode("latin1")
    secret = [one for one in held if one not in {*told["own"].values(), *told["pairs"].values()}]
    assert len(secret) == 3 + 4 and not any(one in left for one in secret)


def test_round_is_summed_over_one_set_of_sites(sites: dict[str, SiteSums]) -> None:
    """A second sum over other sites would tell the upload of the one in which they differ; a rollback allows it."""
    Server(sites, session="a").unmask(*NAMES)
    Server(sites, session="b").unmask(*NAMES)
    again = Server(sites, session="c")
    said = refused(lambda: again.unmask(*NAMES[:3]))
    assert said == (
        "site-0 has helped to add up site-0, site-1, site-2, site-3 for the uploads of round 1, and a second sum of "
        "other sites would tell the difference"
    )
    Server(sites, session="d", what="uploads of round 2").unmask(*NAMES[:3])
    assert "for the uploads of round 1" in refused(lambda: Server(sites, session="e").unmask(*NAMES[:3]))
    went_back = SiteSums(**{**vars(sites["site-0"]), "era": lambda: "another"})
    sites["site-0"] = went_back
    Server(sites, session="f").unmask(*NAMES[:3])
    assert "second sum" in refused(lambda: Server(sites, session="g").unmask(*NAMES))


def test_damaged_memory_of_sums_is_not_taken_for_none(sites: dict[str, SiteSums]) -> None:
    Server(sites, session="a").unmask(*NAMES)
    (sites["site-0"].folder / "sums.json").write_text("{")
    assert "does not know which sums it has helped to make" in refused(Server(sites, session="b").unmask)
