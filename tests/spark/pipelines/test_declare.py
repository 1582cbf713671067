"""Declaring pipelines: what a file may say, and what it is told about its mistakes. Spark does not run for this."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidInput, InvalidName, InvalidValue, PipelineFailed
from millpond.spark.pipelines.blame import blamed, reason
from millpond.spark.pipelines.declare import load_file

HEAD = "import millpond\n\n"
HOT = """
@millpond.pipeline(source="grid/meters", sink="grid/hot")
def hot(meters):
    return meters.where("temp > 30")
"""
JOINED = """
@millpond.pipeline(source={"meters": "grid/meters", "weather": "sky/weather"}, sink="grid/joined", trigger="10s")
def joined(meters, weather):
    return meters.join(weather, "city")
"""
ALERT = 'millpond.sql_pipeline("alert", "SELECT * FROM grid_meters WHERE temp > 90", sink="alerts/hot")\n'


def written(path: Path, *parts: str) -> Path:
    file = path / "pipelines.py"
    file.write_text(HEAD + "\n".join(parts))
    return file


def test_a_file_declares_functions_and_sql(tmp_path: Path) -> None:
    hot, joined, alert = load_file(written(tmp_path, HOT, JOINED, ALERT))
    assert (hot.name, hot.sources, hot.sink, hot.where) == ("hot", {"": "grid/meters"}, "grid/hot", "pipelines.py:4")
    assert joined.sources == {"meters": "grid/meters", "weather": "sky/weather"}
    assert joined.trigger == "10s"
    assert (alert.build, alert.sql) == (None, "SELECT * FROM grid_meters WHERE temp > 90")
    assert alert.where == "pipelines.py:13"
    assert [each.name for each in load_file(tmp_path / "pipelines.py", ["alert", "hot"])] == ["alert", "hot"]


def test_a_declared_function_stays_a_function() -> None:
    @millpond.pipeline(source="a", sink="b")
    def doubled(number: int) -> int:
        return 2 * number

    assert doubled(4) == 8


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("x = 1\n", InvalidInput, "declares no pipeline"),
        (HOT + HOT, InvalidInput, "declares hot twice"),
        ("def broken(:\n", PipelineFailed, "pipelines.py:3: invalid syntax"),
        ("1 / 0\n", PipelineFailed, "pipelines.py, line 3: ZeroDivisionError: division by zero"),
        (HOT.replace("grid/hot", "grid/meters"), PipelineFailed, "would read what it writes"),
        (HOT.replace("(meters)", "()"), PipelineFailed, "cannot take its sources"),
        (JOINED.replace("meters, weather", "meters, sky"), PipelineFailed, "cannot take its sources"),
        (HOT.replace("grid/hot", "../hot"), PipelineFailed, "is not allowed"),
        (HOT.replace('sink="grid/hot"', 'sink="grid/hot", trigger="soon"'), PipelineFailed, "'soon'"),
        (HOT.replace('sink="grid/hot"', 'sink="grid/hot", mode="complete"'), PipelineFailed, "no mode 'complete'"),
        (HOT.replace('sink="grid/hot"', 'sink="grid/hot", name="a/b"'), PipelineFailed, "no name for a pipeline"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as told:
        load_file(written(tmp_path, text))
    assert said in str(told.value)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is not a file"):
        load_file(tmp_path / "nowhere.py")
    with pytest.raises(InvalidValue, match="declares no pipeline 'cold'"):
        load_file(written(tmp_path, HOT), ["cold"])


def test_an_error_of_an_executor_is_brought_down_to_the_users_line(tmp_path: Path) -> None:
    file = written(tmp_path, HOT)
    text = f"""[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/usr/lib/python/worker.py", line 1234, in main
  File "{file}", line 7, in half
    return 1 / number
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:572)
"""
    error = blamed("pipeline 'hot'", file, RuntimeError(text))
    assert error.message == "pipeline 'hot', line 7: ZeroDivisionError: division by zero"
    ours = RuntimeError(
        "boom: Millpond: no stream 'grid/meters'\n  hint: streams: none yet [stream-not-found]\n\tat x(Y)"
    )
    assert reason(ours) == "no stream 'grid/meters'\n  hint: streams: none yet"
    assert isinstance(blamed("x", None, InvalidName("no", hint="do this")), PipelineFailed)
    assert blamed("x", None, InvalidName("no", hint="do this")).hint == "do this"
