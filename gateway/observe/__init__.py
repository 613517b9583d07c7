"""The gateway seen from outside: metrics, health, the admin API, and the topics below `$SYS/`.

Does: gather figures on the event loop, a slice of the sessions at a time, and show them over HTTP and MQTT.
Does not: run on the path of a message; the code there keeps its own counters.
May import: all of the gateway; only `gateway.app` and `gateway.console` import this package.
"""
