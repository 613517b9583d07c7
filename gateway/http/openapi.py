"""The OpenAPI 3.2 description of the HTTP bearer, served as `/openapi.json`; a test checks the gateway against it."""

from typing import Any, Final

import msgspec

from gateway.http.identity import NAME_PATTERN
from gateway.http.message_presence_handler import ID_PATTERN, Claimed, Said
from gateway.http.posted_message import (
    BASE64_PATTERN,
    CONTENT_TYPE_PATTERN,
    EXPIRY_MAX_S,
    FORM,
    KEY_PATTERN,
    PAIRS_PATTERN,
)
from gateway.http.problems import MEDIA_TYPE
from gateway.http.stream_events import EVENT_ID_PATTERN
from gateway.http.streams import WAIT_MAX_S
from schemas.settings import GatewaySettings
from schemas.states import MessagePresenceState

_LEVEL = "(?:[^+#/\\u0000 ][^+#/\\u0000]*| [^+#/\\u0000]+)?"
"""A level of a filter without wildcard. Not a single space: in a query that would be a lone +, which is refused."""

_TOPIC: Final = {"type": "string", "minLength": 1, "pattern": "^[^+#\\u0000]+$"}
_FILTER: Final = {
    "type": "string",
    "minLength": 1,
    "pattern": f"^(?:(?:\\+|{_LEVEL})/)*(?:\\+|#|{_LEVEL})$",
    "description": "an MQTT topic filter (MQTT 5.0, 4.7); write + as %2B",
}
_STRING: Final = {"type": "string"}
_MESSAGE_ID: Final = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": ID_PATTERN}}
_REASONS: Final = {
    400: "something in the request is not as described; `reason` and `detail` say what",
    401: "credentials are missing or not right",
    403: "the client may not do that, or the page that asks may not call",
    404: "the client has no stream; nothing is known of the message",
    405: "another method is allowed",
    408: "the body has not come in time",
    409: "the id is none of the present session's: what it was comes again",
    413: "the body is too large",
    415: "the body has another form than described",
    417: "another expectation than 100-continue",
    422: "the key was used for another destination or body",
    429: "a rate or a quota of the client is used up",
    431: "the request line or a header is too long",
    500: "a fault of the gateway",
    505: "another version of HTTP than 1.1 and 1.0",
    503: "too much at a time, or the gateway is being stopped, or Kafka does not answer: then it may still be stored",
}


def openapi(settings: GatewaySettings) -> dict[str, Any]:
    """The document, with the limits of these settings."""
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Waystation over HTTP",
            "version": "1",
            "description": "Publish messages, receive them as server-sent events, and tell who has which message.",
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": {
            "/v1/messages/{destination}": {"post": _publish(settings)},
            "/v1/stream": {"get": _stream(settings)},
            "/v1/stream/ack": {"post": _acknowledge()},
            "/v1/message-presence/{id}": {"get": _ask(), "post": _say(), "parameters": [_MESSAGE_ID]},
            "/openapi.json": {"get": _describe()},
        },
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Problem": _problem(), "Event": _event(), **_structs(MessagePresenceState, Claimed, Said)},
        },
    }


def _publish(settings: GatewaySettings) -> dict[str, Any]:
    http = settings.http
    headers = {
        "Idempotency-Replayed": {
            "description": "stored by an earlier request with the same key",
            "schema": {"const": "true"},
        }
    }
    return {
        "operationId": "publish",
        "summary": "Publish a message; answered once Kafka has it",
        "parameters": [
            {
                "name": "destination",
                "in": "path",
                "required": True,
                "description": "a topic a/b/c, slashes as they are or as %2F, or an inbox @client",
                "schema": _TOPIC,
            },
            _parameter("qos", {"type": "integer", "enum": [0, 1], "default": 1}, "at most to recipients"),
            _parameter("retain", {"type": "boolean", "default": False}, "keep it for later subscribers"),
            _parameter("expiry", {"type": "integer", "minimum": 0, "maximum": EXPIRY_MAX_S}, "seconds it may wait"),
            _parameter("response_topic", _TOPIC, "where an answer is to go"),
            _client(),
            _header("Correlation-Data", BASE64_PATTERN, "bytes by which an answer is told, base64"),
            _header("User-Property", PAIRS_PATTERN, "name=value, …; all else percent-encoded UTF-8; may be repeated"),
            _header(
                "Idempotency-Key",
                KEY_PATTERN,
                f"the same key of the same client makes one message; kept {http.idempotency_s:g} s, "
                f"the latest {http.idempotency_keys}; needs a client with a name or a user",
            ),
        ],
        "requestBody": {
            "description": f"the payload, {settings.limits.packet_bytes} bytes at most; Content-Type goes with it "
            f"({CONTENT_TYPE_PATTERN}), but for {FORM}",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "202": {
                "description": "Kafka has the message",
                "headers": headers,
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "properties": {"id": {"type": "string", "format": "uuid"}},
                            "required": ["id"],
                        }
                    }
                },
            },
            **_problems(400, 401, 403, 405, 408, 413, 415, 417, 422, 429, 431, 500, 503, 505),
        },
    }


def _stream(settings: GatewaySettings) -> dict[str, Any]:
    http = settings.http
    return {
        "operationId": "stream",
        "summary": "Receive messages as server-sent events",
        "description": "Events `message` have an Event as data. A stream that the gateway ends has a last one, `end`. "
        f"Up to {http.stream_window} events are open; an event id acknowledges all before it.",
        "parameters": [
            {
                "name": "filter",
                "in": "query",
                "description": "the subscriptions of this stream; what is not listed is unsubscribed",
                "schema": {"type": "array", "items": _FILTER},
                "explode": True,
            },
            _parameter("qos", {"type": "integer", "enum": [0, 1], "default": 1}, "at most, of the subscriptions"),
            _parameter(
                "acknowledge",
                {"type": "string", "enum": ["client", "written"]},
                "who acknowledges events: the client (default if it has a name), or the gateway as they are written",
            ),
            _parameter(
                "wait",
                {"type": "number", "exclusiveMinimum": 0, "maximum": WAIT_MAX_S},
                "the stream ends after so many seconds",
            ),
            _parameter(
                "client", {"type": "string", "pattern": NAME_PATTERN}, "as X-Client-Id, which must not stand too"
            ),
            _client(),
            _header("Last-Event-ID", EVENT_ID_PATTERN, "acknowledges this event and all before it"),
        ],
        "responses": {
            "200": {
                "description": "the stream",
                "content": {"text/event-stream": {"itemSchema": _sent_event()}},
            },
            **_problems(400, 401, 403, 405, 429, 431, 500, 503, 505),
        },
    }


def _acknowledge() -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"last_event_id": {"type": "string", "pattern": EVENT_ID_PATTERN}},
        "required": ["last_event_id"],
        "additionalProperties": False,
    }
    return {
        "operationId": "acknowledge",
        "summary": "Acknowledge an event and all before it",
        "parameters": [_client()],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "204": {"description": "acknowledged"},
            **_problems(400, 401, 403, 404, 405, 408, 409, 413, 415, 417, 429, 431, 500, 503, 505),
        },
    }


def _ask() -> dict[str, Any]:
    return {
        "operationId": "askMessagePresence",
        "summary": "What all agents together know of a message of the mesh",
        "parameters": [_client()],
        "responses": {
            "200": {"description": "what is known", "content": _json("MessagePresenceState")},
            **_problems(400, 401, 403, 404, 405, 429, 431, 500, 503, 505),
        },
    }


def _say() -> dict[str, Any]:
    return {
        "operationId": "tellMessagePresence",
        "summary": "What an agent has done about a message, or wants to: `claimed` is answered once it is judged",
        "parameters": [_client()],
        "requestBody": {"required": True, "content": _json("Said")},
        "responses": {
            "200": {"description": "the claim is judged", "content": _json("Claimed")},
            "204": {"description": "the event is stored"},
            **_problems(400, 401, 403, 405, 408, 413, 415, 417, 429, 431, 500, 503, 505),
        },
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _structs(*kinds: type[msgspec.Struct]) -> dict[str, Any]:
    """The schemas of these types and of the types they contain."""
    return msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")[1]


def _describe() -> dict[str, Any]:
    return {
        "operationId": "describe",
        "summary": "This document",
        "responses": {
            "200": {"description": "OpenAPI 3.2", "content": {"application/json": {"schema": {"type": "object"}}}},
            **_problems(400, 403, 405, 431, 500, 503, 505),
        },
    }


def _parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _header(name: str, pattern: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string", "pattern": pattern}}


def _client() -> dict[str, Any]:
    return _header("X-Client-Id", NAME_PATTERN, "the client's name for itself; the home knows it as http:<name>")


def _problems(*statuses: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {str(status): {"description": _REASONS[status], "content": content} for status in statuses}


def _problem() -> dict[str, Any]:
    properties = {
        "type": {"const": "about:blank"},
        "title": _STRING,
        "status": {"type": "integer"},
        "detail": _STRING,
        "reason": {"type": "string", "pattern": "^[a-z0-9_]+$"},
    }
    return {"type": "object", "description": "RFC 9457", "properties": properties, "required": list(properties)}


def _sent_event() -> dict[str, Any]:
    """An event as sent; `contentSchema` describes its data."""
    end = {"type": "object", "properties": {"reason": _STRING}, "required": ["reason"]}
    content = {"anyOf": [{"$ref": "#/components/schemas/Event"}, end]}
    properties = {
        "event": {"enum": ["message", "end"]},
        "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": content},
        "id": {"type": "string", "pattern": EVENT_ID_PATTERN, "description": "none at QoS 0"},
    }
    return {"type": "object", "properties": properties, "required": ["event", "data"]}


def _event() -> dict[str, Any]:
    base64 = {"type": "string", "contentEncoding": "base64"}
    properties = {
        "id": {"type": "string", "format": "uuid"},
        "topic": _STRING,
        "payload": {"type": "string", "description": "as `encoding` says"},
        "encoding": {"enum": ["text", "base64"]},
        "qos": {"enum": [0, 1, 2]},
        "retain": {"type": "boolean"},
        "properties": {
            "type": "object",
            "properties": {
                "payload_format_indicator": {"enum": [0, 1]},
                "expiry": {"type": "integer", "minimum": 0, "description": "seconds left"},
                "content_type": _STRING,
                "response_topic": _STRING,
                "correlation_data": base64,
                "user_properties": {"type": "array", "items": {"type": "array", "items": _STRING}},
            },
        },
    }
    return {"type": "object", "properties": properties, "required": list(properties)}
