"""`/openapi.json` says what the gateway does: schemathesis makes requests from it, good and bad, and finds no fault."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from feeds.message import FEED_NAME
from gateway.http.connect_handler import PARAMETERS as CONNECT_PARAMETERS
from gateway.http.feeds_handler import EVENTS_PARAMETERS
from gateway.http.identity import NAME_PATTERN
from gateway.http.message_presence_handler import Claimed, OneEvent
from gateway.http.openapi import openapi
from gateway.http.posted_message import CONTENT_TYPE_PATTERN, FORM, KEY_PATTERN
from gateway.http.posted_message import PARAMETERS as PUBLISH_PARAMETERS
from gateway.http.problems import STATUSES
from gateway.http.requested import MOST_MAX
from gateway.http.requested import PARAMETERS as REQUEST_PARAMETERS
from gateway.http.stream_events import EVENT_ID_PATTERN
from gateway.http.streams import PARAMETERS as STREAM_PARAMETERS
from gateway.http.streams import WAIT_MAX_S
from mqtt.limits import EXPIRY_MAX_S
from schemas.enrolment import EnrolmentAnswer, EnrolmentRequest, RenewalRequest
from schemas.feed_api import (
    SUBSCRIBER_PATTERN,
    AdministrativeMessage,
    AdministrativeState,
    BrokeredPair,
    FeedAssignment,
    FeedChange,
    FeedDetail,
    FeedList,
    SubscriberRequest,
    SwitchRequest,
)
from schemas.members import BEARERS
from schemas.mesh_api import (
    MESSAGE_ID_PATTERN,
    BundlesAnswer,
    BundlesRequest,
    CertificatesAnswer,
    CertificatesRequest,
    MeshState,
    PresenceAnswer,
    PresenceQuery,
    ReceiptsAnswer,
    ReceiptsRequest,
    ReportsAnswer,
    ReportsRequest,
    WaitingAnswer,
    WaitingRequest,
)
from schemas.settings import process_settings
from schemas.states import MessagePresenceState
from tests.draw import examples
from tests.unit.gateway.http.enrolment_files import authority_directory, enrolment_settings, request_to
from tests.unit.gateway.http.http_harness import HttpHarness, run
from tests.unit.gateway.http.responder import Request, Responder, echo, responding

EXAMPLES = 15
MESH = (
    *(BundlesRequest, BundlesAnswer, ReportsRequest, ReportsAnswer),
    *(PresenceQuery, PresenceAnswer, MeshState),
    *(WaitingRequest, WaitingAnswer, ReceiptsRequest, ReceiptsAnswer),
    *(CertificatesRequest, CertificatesAnswer),
)
FEEDS = (
    *(FeedList, FeedDetail, SubscriberRequest, BrokeredPair, SwitchRequest, FeedAssignment),
    *(AdministrativeMessage, AdministrativeState, FeedChange),
)
PROPERTIES = ("content_type", "correlation_data", "expiry", "response_topic", "user_properties")
OPERATIONS = [
    ("/v1/messages/{destination}", "POST"),
    ("/v1/requests/{destination}", "POST"),
    ("/v1/stream", "GET"),
    ("/v1/stream/ack", "POST"),
    ("/v1/message-presence/{id}", "GET"),
    ("/v1/message-presence/{id}", "POST"),
    ("/v1/message-presence", "POST"),
    ("/v1/message-presence/query", "POST"),
    ("/v1/bundles", "POST"),
    ("/v1/bundles/waiting", "POST"),
    ("/v1/receipts", "POST"),
    ("/v1/mesh", "GET"),
    ("/v1/mesh/certificates", "POST"),
    ("/v1/connect", "GET"),
    ("/v1/enrolments", "POST"),
    ("/v1/enrolments/renewal", "POST"),
    ("/v1/feeds", "GET"),
    ("/v1/feeds/{feed}", "GET"),
    ("/v1/feeds/{feed}/subscribers", "POST"),
    ("/v1/feeds/{feed}/subscribers/{subscriber}", "DELETE"),
    ("/v1/feeds/{feed}/events", "GET"),
    ("/v1/feeds/{feed}/switch", "POST"),
    ("/v1/feeds/{feed}/administrative", "POST"),
    ("/v1/feeds/{feed}/administrative/{id}", "GET"),
    ("/openapi.json", "GET"),
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """What a gateway says of itself, which runs on a thread."""
    loop = asyncio.new_event_loop()
    ready, stopping = threading.Event(), asyncio.Event()
    ports: list[int] = []
    left: list[Exception] = []

    async def gateway() -> None:
        enrolment = enrolment_settings(authority_directory(tmp_path_factory.mktemp("authority")))
        directory = tmp_path_factory.mktemp("harness")
        options: dict[str, Any] = {"gateway": {"enrolment": enrolment}, "feeds": {"names": ["radar"]}}
        http = {"kafka_timeout_s": 0.5, "request_timeout_s": 1}
        harness = await HttpHarness(directory, http, **options).start()
        HttpHarness.started.remove(harness)  # it ends with the module
        await responding(harness, answer_requests, "#")
        ports.append(harness.port)
        ready.set()
        await stopping.wait()
        await harness.end()
        left.extend(harness.fatal)

    thread = threading.Thread(target=loop.run_until_complete, args=(gateway(),))
    thread.start()
    assert ready.wait(20)
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{ports[0]}/openapi.json")
    # What breaks the description may be too large as well, and that is found first.
    schema.config.checks.negative_data_rejection.expected_statuses.append("413")
    yield schema
    loop.call_soon_threadsafe(stopping.set)
    thread.join(20)
    loop.close()
    assert not left


def answer_requests(responder: Responder, request: Request) -> None:
    if "correlation_data" in request.properties and request.properties.get("response_topic", "").startswith("@"):
        echo(responder, request)


def abide(case: schemathesis.Case) -> None:
    """The rules between parameters, which their descriptions state in words."""
    if "Idempotency-Key" in case.headers:  # needs a client, and is used for one message
        case.headers["X-Client-Id"] = f"client-{uuid4().hex}"
    if case.path.startswith("/v1/requests/"):
        case.query["timeout"] = 1
        case.query.pop("most", None)
        if "again_after" in case.query:
            case.query["again_after"] = 1
        if case.query.get("replies") == "all":
            case.query["most"] = 1
            case.query.pop("again_after", None)
    if case.path == "/v1/message-presence/{id}" and case.method == "POST":
        case.headers["X-Client-Id"] = "agent"
        if case.body["event"] in ("propagated", "delivered"):
            case.body["peer"] = "peer"
        if case.body["event"] == "claimed":
            case.body["event"] = "attempting"  # there is no ledger here that would judge a claim
        for name in {"at_us", "until_us"} & case.body.keys():
            case.body[name] = int(case.body[name])  # the number 5.0 is an integer for JSON Schema, 5 has to be written
    if case.path == "/v1/message-presence":
        case.headers["X-Client-Id"] = "agent"
        for event in case.body["events"]:
            if event["event"] == "claimed":
                event["event"] = "attempting"
            for name in {"at_us", "until_us"} & event.keys():
                event[name] = int(event[name])
    if case.path.startswith("/v1/enrolments"):  # what is signed cannot be drawn
        case.body = request_to(case.path)
    if case.path.startswith("/v1/feeds/"):
        case.path_parameters["feed"] = "radar"
    if case.path == "/v1/feeds/{feed}/administrative" and case.method == "POST":
        case.body.pop("payload_base64", None)
        case.body["payload"] = case.body.get("payload") or ""
        case.body["lead"] = int(case.body["lead"]) if case.body.get("lead") else None
    if "X-Client-Id" in case.headers and case.path == "/v1/stream":
        case.query.pop("client", None)


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (path, method, mode)
        for path, method in OPERATIONS
        for mode in GenerationMode
        if path != "/openapi.json" or mode is GenerationMode.POSITIVE  # takes nothing that could be wrong
    ],
)
def test_the_gateway_is_as_it_is_described(
    described: schemathesis.BaseSchema, path: str, method: str, mode: GenerationMode
) -> None:
    """G11. A stream that is opened ends at once."""

    @given(case=described[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=examples(EXAMPLES), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def holds(case: schemathesis.Case) -> None:
        if path in ("/v1/stream", "/v1/feeds/{feed}/events") and isinstance(case.query.get("wait", 1), (int, float)):
            case.query["wait"] = 0.001
        if mode is GenerationMode.POSITIVE:
            abide(case)
        case.call_and_validate()

    holds()


def test_events_are_as_they_are_described(tmp_path: Path) -> None:
    """What schemathesis does not look into: the data of events."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        validator = jsonschema_rs.validator_for(
            openapi(harness.settings().gateway)["components"]["schemas"]["Event"], validate_formats=True
        )
        headers = {"Correlation-Data": "AA==", "User-Property": "a=b", "Content-Type": "x/y"}
        async with harness.stream("?filter=%23") as stream:
            await harness.post("a?retain=true&expiry=9&response_topic=r", b"\xff", headers)
            await harness.post("a?qos=0", b"")
            for event in await stream.events(2):
                validator.validate(event.data)
                assert set(event.data["properties"]) <= set(PROPERTIES)

    run(scenario())


def test_every_route_is_described_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        routes = {(route.resource.canonical, route.method) for route in harness.http.routes.routes() if route.resource}
        described = openapi(harness.settings().gateway)["paths"]
        assert routes == set(OPERATIONS)
        assert routes == {
            (path, method.upper()) for path, item in described.items() for method in item if method != "parameters"
        }

    run(scenario())


def test_every_parameter_is_described() -> None:
    paths = openapi(process_settings({}).gateway)["paths"]
    published = _parameters(paths["/v1/messages/{destination}"]["post"])
    streamed = _parameters(paths["/v1/stream"]["get"])
    asking = _parameters(paths["/v1/requests/{destination}"]["post"])
    assert {name for name, parameter in asking.items() if parameter["in"] == "query"} == set(REQUEST_PARAMETERS)
    assert {name for name, parameter in published.items() if parameter["in"] == "query"} == set(PUBLISH_PARAMETERS)
    assert {name for name, parameter in streamed.items() if parameter["in"] == "query"} == set(STREAM_PARAMETERS)
    asked = _parameters(paths["/v1/connect"]["get"])
    assert {name for name, parameter in asked.items() if parameter["in"] == "query"} == set(CONNECT_PARAMETERS)


def test_patterns_and_limits_are_those_of_the_gateway() -> None:
    document = openapi(process_settings({}).gateway)
    paths, schemas = document["paths"], document["components"]["schemas"]
    published = paths["/v1/messages/{destination}"]["post"]
    assert schemas["ClientName"]["pattern"] == NAME_PATTERN
    assert schemas["Bearer"]["enum"] == list(BEARERS)
    assert schemas["EventId"]["pattern"] == EVENT_ID_PATTERN
    assert paths["/v1/message-presence/{id}"]["parameters"][0]["schema"]["pattern"] == MESSAGE_ID_PATTERN
    assert _parameters(published)["Idempotency-Key"]["schema"]["pattern"] == KEY_PATTERN
    asked = paths["/v1/requests/{destination}"]["post"]
    assert _parameters(asked)["most"]["schema"]["maximum"] == MOST_MAX
    assert _parameters(asked)["Idempotency-Key"]["schema"]["pattern"] == KEY_PATTERN
    assert _parameters(published)["expiry"]["schema"]["maximum"] == EXPIRY_MAX_S
    assert _parameters(paths["/v1/stream"]["get"])["wait"]["schema"]["maximum"] == WAIT_MAX_S
    unsubscribed = paths["/v1/feeds/{feed}/subscribers/{subscriber}"]["parameters"]
    assert [parameter["schema"].get("pattern") for parameter in unsubscribed] == [None, SUBSCRIBER_PATTERN]
    assert schemas["FeedName"]["pattern"] == f"^{FEED_NAME.pattern}$"
    assert set(_parameters(paths["/v1/feeds/{feed}/events"]["get"])) - {"Last-Event-ID"} == set(EVENTS_PARAMETERS)
    for text in (CONTENT_TYPE_PATTERN, FORM):
        assert text in published["requestBody"]["description"]


def test_settings_stand_in_the_document_with_their_values() -> None:
    gateway = process_settings({}).gateway
    limits = msgspec.structs.replace(gateway.limits, packet_bytes=268_435_455)
    http = msgspec.structs.replace(gateway.http, idempotency_s=0.5, idempotency_keys=7_654_321, stream_window=77)
    access_point = msgspec.structs.replace(gateway.access_point, fresh_s=7)
    changed = msgspec.structs.replace(gateway, limits=limits, http=http, access_point=access_point)
    text = json.dumps(openapi(changed))
    for phrase in ("most 268435455 bytes", "max-age=7", "for 0.5 s", "latest 7654321 keys", "most 77 events"):
        assert phrase in text
    assert not re.search(r"\{\w+\.", text)


def test_json_bodies_are_those_of_the_gateway() -> None:
    """But for the descriptions, which address other readers."""
    described = openapi(process_settings({}).gateway)["components"]["schemas"]
    kinds = (MessagePresenceState, Claimed, OneEvent, *MESH, *FEEDS)
    kinds = (*kinds, EnrolmentRequest, RenewalRequest, EnrolmentAnswer)
    _, generated = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for name, schema in generated.items():
        assert described[name] | {"description": ""} == schema | {"description": ""}, name


def _parameters(operation: dict[str, Any]) -> dict[str, Any]:
    return {parameter["name"]: parameter for parameter in operation["parameters"] if "name" in parameter}


def test_the_metrics_know_every_status_that_is_described() -> None:
    """Each has a series from the start, and no other is answered."""
    described = openapi(process_settings({}).gateway)
    methods = [method for path in described["paths"].values() for method in path.values() if isinstance(method, dict)]
    assert {int(status) for method in methods for status in method["responses"]} == set(STATUSES)
