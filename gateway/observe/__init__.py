"""The gateway seen from outside: metrics, health, the admin API, and the topics below `$SYS/`.

Does: gather figures on the event loop, a slice of the sessions at a time, and show them over HTTP and MQTT.
Does not: anything on the path of a message; what is counted there is counted by whoever does it.
May import: all of the gateway; nothing of it imports this package but `gateway.app`.
"""
