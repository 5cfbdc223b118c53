import os
import pathlib
import signal
import threading
import time

import numpy
import pytest

import remcaps

RECIPE = "fashion-mnist/eff-capsnet-rem"
QUICK = dict(dataset={"limit_train": 192, "limit_test": 64, "validation": 64},
             model={"conv_channels": [4, 8, 8, 16]})


def test_training_reports_epochs_and_returns_the_summary(tmp_path):
    rows = []
    summary = remcaps.train(RECIPE, out=tmp_path, on_epoch=rows.append,
                            train={"epochs": numpy.int64(2), "lr": 0.002},
                            metrics={"every": 1}, **QUICK)
    assert [row["epoch"] for row in rows] == [0, 1]
    assert rows[0]["lr"] == 0.002 and rows[1]["lr"] == pytest.approx(0.002 * 0.99)
    assert all(0 <= row["validation_accuracy"] <= 1 for row in rows)
    assert summary["epochs"] == 2 and summary["stopped"] == "epochs"
    assert summary == remcaps.summary(summary["run"])
    metrics = remcaps.metrics(summary["run"])
    assert metrics["entropy"] == [row["entropy"] for row in rows]
    assert {len(column) for column in metrics.values()} == {2}
    assert remcaps.load(summary["run"]).architecture == "eff-capsnet"


def test_tables_of_pandas_take_metrics_and_summaries(tmp_path):
    pandas = pytest.importorskip("pandas")
    summary = remcaps.train(RECIPE, out=tmp_path, train={"epochs": 1}, **QUICK)
    frame = pandas.DataFrame(remcaps.metrics(summary["run"]))
    assert frame["train_loss"].dtype == float and len(frame) == 1
    assert pandas.DataFrame([summary])["epochs"].tolist() == [1]


def test_other_python_threads_run_while_it_trains(tmp_path):
    def stop():
        while not (tmp_path / "seed-42" / "metrics.csv").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):  # without the lock's release it would train all epochs
        remcaps.train(RECIPE, out=tmp_path, train={"epochs": 100}, **QUICK)
    thread.join()


def test_ctrl_c_saves_and_resume_goes_on(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    rows = []

    def interrupt(row):
        rows.append(row)
        if len(rows) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="saved at"):
        remcaps.train(RECIPE, out=tmp_path, on_epoch=interrupt, train={"epochs": 3}, **QUICK)
    assert signal.getsignal(signal.SIGINT) is before
    run = tmp_path / "seed-42"
    with pytest.raises(remcaps.Error, match="has not ended"):
        remcaps.summary(run)
    resumed = remcaps.resume(run, on_epoch=rows.append)
    assert resumed["epochs"] == 3
    whole = remcaps.train(RECIPE, out=tmp_path / "whole", train={"epochs": 3}, **QUICK)
    assert remcaps.metrics(run) == remcaps.metrics(whole["run"])


def test_an_exception_in_the_callback_ends_the_run_and_saves_it(tmp_path):
    class Enough(Exception):
        pass

    def stop(row):
        raise Enough

    with pytest.raises(Enough):
        remcaps.train(RECIPE, out=tmp_path, on_epoch=stop, train={"epochs": 2}, **QUICK)
    assert remcaps.resume(tmp_path / "seed-42", epochs=1)["epochs"] == 1


def test_wrong_recipes_and_keys_are_usage_errors(tmp_path):
    with pytest.raises(remcaps.UsageError, match="did you mean fashion-mnist/eff-capsnet"):
        remcaps.train("fashion-mnist/ef-capsnet", out=tmp_path)
    with pytest.raises(remcaps.UsageError, match="epochs"):
        remcaps.train(RECIPE, out=tmp_path, train={"epoch": 1})
    with pytest.raises(remcaps.UsageError, match="data"):
        remcaps.train(RECIPE, out=tmp_path, datas="x")
    with pytest.raises(TypeError, match="on_epoch is of type int; expected a function"):
        remcaps.train(RECIPE, out=tmp_path, on_epoch=3)
    with pytest.raises(TypeError, match="epochs is of type object"):
        remcaps.train(RECIPE, out=tmp_path, train={"epochs": object()})
    assert list(pathlib.Path(tmp_path).iterdir()) == []
    assert RECIPE in remcaps.recipes()
