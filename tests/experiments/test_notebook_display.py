"""In a notebook: short reprs, tables and pictures as HTML, settings in signatures, and a bar where one can be drawn."""

import inspect
import sys
from types import SimpleNamespace

import pytest

import idiolect
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.progress.progress_bar import ProgressBar
from idiolect.experiments.progress.watcher import ProgressLines, progress_on_stderr

SMALL = {"clients": 4, "partition": "iid", "model": "mlpnet(hidden=8)", "evaluate_every": 1, "quiet": True}


def test_comparisons_and_runs_are_shown_as_a_table_with_a_picture(tmp_path):
    done = idiolect.compare(["fedavg", "fedper"], rounds=2, out=tmp_path, **SMALL)
    assert repr(done) == f"<Comparison of FedAvg, FedPer: 2 runs in {done.folder}>"
    shown = done._repr_html_()
    assert "<td>FedAvg</td>" in shown and "<td>FedPer</td>" in shown and "data:image/png;base64," in shown
    one = done.runs[1]
    assert repr(one) == f"<FinishedRun {one.name}: 4 clients>"
    assert "<td>FedPer</td>" in one._repr_html_() and "<td>FedAvg</td>" not in one._repr_html_()


def test_a_single_evaluation_is_shown_without_a_picture(tmp_path):
    shown = idiolect.run("fedavg", rounds=1, out=tmp_path, **SMALL)._repr_html_()
    assert "<td>FedAvg</td>" in shown and "<img" not in shown


def test_methods_are_shown_by_their_parts():
    method = idiolect.method("fedper(count=2)")
    assert repr(method) == "<Method fedper: average + private_layers(count=2); headline composed>"
    assert (
        "<code>private_layers(count=2)</code></td><td>init_client, private, start, " in method._repr_html_()
    )


@pytest.mark.parametrize("function", [idiolect.run, idiolect.compare, idiolect.sweep])
def test_signatures_name_every_setting(function):
    shown = inspect.signature(function).parameters
    for one in (Experiment(), Execution()):
        for name in set(vars(one)) - {"method", "seed", "watcher"}:
            assert name in shown
            assert shown[name].default == getattr(one, name)
    assert "client_column" in shown and "quiet" in shown


def test_a_notebook_with_widgets_has_a_bar(monkeypatch):
    class ZMQInteractiveShell:
        pass

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    found = "idiolect.experiments.progress.watcher.find_spec"
    monkeypatch.setattr(found, lambda name: object())
    assert isinstance(progress_on_stderr(), ProgressBar)
    monkeypatch.setattr(found, lambda name: None)
    assert isinstance(progress_on_stderr(), ProgressLines)
