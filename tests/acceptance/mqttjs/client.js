// MQTT.js over WebSocket: node client.js URL VERSION RUN. What came of it goes to standard output as JSON.
import mqtt from "mqtt";

const [url, version, run] = process.argv.slice(2);
const LARGE = 300_000; // more than the client sends in one frame

function connect(name, isPersistent) {
  return mqtt.connectAsync(url, {
    protocolVersion: Number(version),
    clientId: `${name}-${run}`,
    clean: !isPersistent,
    reconnectPeriod: 0,
    ...(version === "5" && isPersistent ? { properties: { sessionExpiryInterval: 600 } } : {}),
  });
}

const received = [];
let wanted = 0;
let done = () => {};

function listen(client) {
  client.on("message", (topic, payload, packet) => {
    received.push({
      topic,
      qos: packet.qos,
      retain: packet.retain,
      text: payload.length < 100 ? payload.toString() : `${payload.length} bytes`,
      user: packet.properties?.userProperties?.name ?? null,
    });
    if (received.length >= wanted) done();
  });
}

function until(number) {
  wanted = number;
  return received.length >= number ? Promise.resolve() : new Promise((resolve) => (done = resolve));
}

const sender = await connect("js-sender", false);
await sender.publishAsync(`js/${run}/retained`, "kept", { qos: 1, retain: true });

let receiver = await connect("js-receiver", true);
listen(receiver);
const granted = await receiver.subscribeAsync(`js/${run}/#`, { qos: 2 });
await until(1);
const properties = version === "5" ? { properties: { userProperties: { name: "value" } } } : {};
for (const qos of [0, 1, 2]) {
  await sender.publishAsync(`js/${run}/${qos}`, `at ${qos}`, { qos, ...properties });
}
await sender.publishAsync(`js/${run}/large`, Buffer.alloc(LARGE), { qos: 1 });
await until(5);
await receiver.endAsync();

await sender.publishAsync(`js/${run}/missed`, "missed", { qos: 2 });
let isPresent = null;
receiver = mqtt.connect(url, {
  protocolVersion: Number(version),
  clientId: `js-receiver-${run}`,
  clean: false,
  reconnectPeriod: 0,
  ...(version === "5" ? { properties: { sessionExpiryInterval: 0 } } : {}),
});
receiver.on("connect", (connack) => (isPresent = connack.sessionPresent));
listen(receiver);
await until(6);
await sender.publishAsync(`js/${run}/retained`, "", { qos: 1, retain: true });
await receiver.endAsync();
await sender.endAsync();
console.log(JSON.stringify({ granted: granted[0].qos, isPresent, received: received.slice(0, 6) }));
