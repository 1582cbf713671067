"""Any bytes from outside give a right answer or one of our errors; what was written is read back as it was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight

from millpond.errors import MillpondError
from millpond.flight import messages
from millpond.ingest import Ingest
from millpond.model.definition import StreamDefinition
from millpond.model.offsets import OffsetRange
from millpond.model.predicate import Compare
from millpond.model.rows import codec_of
from millpond.model.schema_text import parse_schema
from millpond.pond.opening import open_pond
from millpond.pond.stream import Stream
from millpond.query import parse_start
from millpond.serve import matching, routes
from millpond.serve.bodies import decompressed
from millpond.serve.forms import ARROW, CSV, JSON, NDJSON, PAGE_FORMS, chosen_form, written
from millpond.serve.records_in import decode_records
from millpond.serve.settings import ServeSettings
from millpond.testing import strategies as ponds
from millpond.wire import LiveTicket, encode_ticket
from millpond.wire.requests import Append, Explain, Read, Scan
from millpond.wire.ticket import decode_ticket
from tests.serve.payloads import COMPRESSED, PAYLOADS, RAW, TYPED, mutated

SETTINGS = ServeSettings()
seeds = st.integers(0, 2**32)
ROOT = Path(__file__).parent.parent.parent


def refused(call: Callable[[], Any]) -> bool:
    """Whether it was refused by one of our errors, with something to say. Anything else is raised."""
    try:
        call()
    except MillpondError as error:
        if not (error.message and error.hint):
            raise AssertionError(f"an error that does not help: {error!r}") from error
        return True
    return False


# Records in.


def taken(definition: StreamDefinition, headers: dict[str, str], body: bytes) -> int:
    """Decode records as an append does, and read what would be in the journal; how many there are."""
    rows = decode_records(definition, headers, body, SETTINGS)
    total = 0
    for part in Ingest(definition).prepare(rows, 1_700_000_000_000_000):
        batch = part.batch if part.encoded is None else codec_of(definition.schema).decode([part.encoded])
        batch.validate(full=True)
        total += batch.num_rows
    return total


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_the_payloads_that_are_mutated_are_right(number: int) -> None:
    assert taken(TYPED, *PAYLOADS[number]) >= 1


# Arrow that is damaged may crash the interpreter: it goes to a process of its own, below.
TEXTS = [(headers, body) for headers, body in PAYLOADS if headers.get("content-type") != ARROW]


@pytest.mark.parametrize("number", range(len(TEXTS)))
@given(seed=seeds)
def test_mutated_records_are_taken_or_refused(number: int, seed: int) -> None:
    chance = random.Random(seed)
    headers, body = TEXTS[number]
    for definition in (TYPED, RAW):
        for _ in range(10):
            changed = mutated(body, chance)
            refused(lambda changed=changed, definition=definition: taken(definition, headers, changed))


@given(st.binary(max_size=200), st.sampled_from([headers for headers, _ in TEXTS]))
def test_any_bytes_are_taken_or_refused(body: bytes, headers: dict[str, str]) -> None:
    for definition in (TYPED, RAW):
        refused(lambda definition=definition: taken(definition, headers, body))


@given(
    st.dictionaries(
        st.sampled_from(["ce-id", "ce-source", "ce-type", "ce-specversion", "ce-time", "ce-x", "ce-", "content-type"]),
        st.text(st.characters(max_codepoint=255), max_size=20) | st.sampled_from(["1.0", "application/json", "%ff"]),
    ),
    st.binary(max_size=50),
)
def test_any_headers_are_taken_or_refused(headers: dict[str, str], body: bytes) -> None:
    for definition in (TYPED, RAW):
        refused(lambda definition=definition: taken(definition, headers, body))


@given(seeds, st.sampled_from(["gzip", "deflate", "x-gzip", "identity", "br", "gzip, gzip", ""]))
def test_mutated_compression_is_undone_or_refused(seed: int, encoding: str) -> None:
    chance = random.Random(seed)
    for body in COMPRESSED:
        assert decompressed(body, "gzip", 10_000_000)
        changed = mutated(body, chance)
        refused(lambda changed=changed: decompressed(changed, encoding, 1_000))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2))
def test_damaged_arrow_crashes_nothing(seed: int) -> None:
    assert_arrow_survives(seed, 3_000)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(10, 20))
def test_very_much_damaged_arrow_crashes_nothing(seed: int) -> None:
    assert_arrow_survives(seed, 200_000)


def assert_arrow_survives(seed: int, count: int) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.serve.fuzz_arrow", str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    good, bad = map(int, done.stdout.split())
    assert good + bad == count
    assert good >= 5
    assert bad > count / 10


# Requests.


@given(st.binary(max_size=60).map(lambda tail: b"/v1/streams/" + tail) | st.binary(max_size=60))
def test_any_path_is_a_route_or_refused(path: bytes) -> None:
    for method in ("GET", "PUT", "POST", "DELETE", "BREW"):
        refused(lambda method=method: matching.match(method, path))
    assert set(matching.allowed_methods(path)) <= {"GET", "PUT", "POST", "PATCH", "DELETE"}


QUERIES = [
    b"start=earliest&limit=10&columns=vid,temp&where=temp%20%3E%2020&follow=true&format=ndjson",
    b"key=%C3%A9&by=x",
]


@given(seeds, st.binary(max_size=60))
def test_any_query_is_read_or_refused(seed: int, garbage: bytes) -> None:
    chance = random.Random(seed)
    for kind in {route.query for route in routes.ROUTES}:
        for text in (garbage, *(mutated(query, chance) for query in QUERIES)):
            refused(lambda kind=kind, text=text: matching.read_query(kind, text))


@given(st.text(max_size=80), st.none() | st.text(max_size=10))
def test_any_accept_is_a_form_or_refused(accept: str, named: str | None) -> None:
    refused(lambda: chosen_form(named, accept, PAGE_FORMS))


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    with open_pond(tmp_path_factory.mktemp("fuzz") / "pond", create=True, background=False) as pond:
        made = pond.create_stream("s", parse_schema("n bigint, text string"), streamlets=2)
        made.append([{"n": n, "text": str(n)} for n in range(100)])
        made.settle()
        made.append([{"n": n, "text": str(n)} for n in range(100)])
        yield made


PLACES = ["earliest", "latest", "12", "0:12,1:7", "2026-01-31T12:00:00Z", "0:99999999999999999999", "٣", "1:1:1", "-1"]


@given(st.sampled_from(PLACES) | st.text(max_size=30), seeds)
def test_any_place_is_one_to_start_at_or_refused(stream: Stream, place: str, seed: int) -> None:
    changed = mutated(place.encode(), random.Random(seed)).decode(errors="replace")
    for text in (place, changed):
        refused(lambda text=text: stream.read(parse_start(text)).poll())


CONDITIONS = [
    "n > 20 AND text = 'x'",
    "n IN (1, 2, NULL) OR NOT text LIKE '%a_'",
    "n BETWEEN -1 AND 1e3",
    "text IS NOT NULL",
]


@given(st.sampled_from(CONDITIONS), seeds, st.text(max_size=30))
def test_any_condition_is_met_or_refused(stream: Stream, condition: str, seed: int, garbage: str) -> None:
    changed = mutated(condition.encode(), random.Random(seed)).decode(errors="replace")
    assert stream.count(condition) >= 0
    for text in (changed, garbage):
        refused(lambda text=text: stream.count(text))


# Flight's messages.

TICKET = encode_ticket(LiveTicket(7, 1, {3: OffsetRange(1, 5)}, ("n", "_offset"), Compare("<", "n", 1)))
MESSAGES = [
    TICKET,
    *(
        msgspec.json.encode(each)
        for each in (
            Scan("s", "n > 1", None, ("n",), 10),
            Read("s", {0: 12}, True),
            Append("s", "p", 1, "os"),
            Explain("s"),
            messages.BatchNote(3),
            messages.Credit(100),
            messages.AckNote({0: OffsetRange(1, 2)}, "disk"),
        )
    ),
]


@given(seeds, st.binary(max_size=60))
def test_any_message_is_understood_or_refused(seed: int, garbage: bytes) -> None:
    chance = random.Random(seed)
    kinds = (messages.BatchNote, messages.Credit, messages.AckNote, messages.PushNote)
    for data in (garbage, *(mutated(message, chance) for message in MESSAGES)):
        descriptor = flight.FlightDescriptor.for_command(data)
        path = flight.FlightDescriptor.for_path(data)
        calls: list[Callable[[], Any]] = [
            lambda data=data: decode_ticket(data),
            lambda data=data: messages.decode_got(data),
            lambda data=data: messages.decode_action("explain", data),
            lambda descriptor=descriptor: messages.decode_put(descriptor),
            lambda descriptor=descriptor: messages.decode_followed(descriptor),
            lambda descriptor=descriptor: messages.decode_named(descriptor),
            lambda path=path: messages.decode_put(path),
            *(lambda data=data, kind=kind: messages.decode_note(data, kind) for kind in kinds),
        ]
        for call in calls:
            refused(call)


# Out and in again.

MEDIA = {"json": JSON, "ndjson": NDJSON, "csv": CSV, "arrow": ARROW}


@pytest.mark.parametrize("form", PAGE_FORMS)
@given(data=st.data())
def test_records_come_in_as_they_went_out(form: str, data: st.DataObject) -> None:
    schema = data.draw(ponds.schemas())
    batches = data.draw(st.lists(ponds.batches(schema, most=6), max_size=3))
    body = b"".join(written(form, schema, batches))
    if form == "json":
        whole = json.loads(body)
        assert whole.keys() == {"records"}
        body = body[body.index(b"[") : -1]
    definition = StreamDefinition(2, "s", (schema,))
    rows = decode_records(definition, {"content-type": MEDIA[form]}, body, SETTINGS)
    codec = codec_of(schema)
    found = [
        part.batch if part.encoded is None else codec.decode([part.encoded])
        for part in Ingest(definition).prepare(rows, 0)
    ]
    expected = pa.Table.from_batches(batches, schema=schema)
    ponds.assert_same_rows(pa.Table.from_batches(found, schema=schema), expected)
