// MQTT.js, driven line by line: see README.txt. Usage: node driver.mjs DIRECTORY-WITH-node_modules
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { readFileSync } from 'node:fs'

const { connect } = createRequire(join(process.argv[2], 'package.json'))('mqtt')

let client

const tell = (event, fields = {}) => process.stdout.write(JSON.stringify({ event, ...fields }) + '\n')

// text makes the bytes in a message's properties readable.
const text = (properties = {}) =>
  Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, Buffer.isBuffer(value) ? value.toString() : value]))

const commands = {
  // connect: url, options as of MQTT.js, caFile. A client that reconnects by itself tells each time.
  connect({ url, options, caFile }) {
    if (caFile) options.ca = readFileSync(caFile)
    client = connect(url, options)
    client.on('connect', (ack) => tell('connect', { present: ack.sessionPresent }))
    client.on('message', (topic, payload, packet) =>
      tell('message', {
        topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain, properties: text(packet.properties),
      }))
    client.on('disconnect', (packet) => tell('disconnect', { code: packet.reasonCode }))
    client.on('error', (error) => tell('error', { error: error.message, code: error.code }))
    client.on('close', () => tell('close'))
  },
  subscribe({ topic, options }) {
    client.subscribe(topic, options, (error, granted) =>
      tell('subscribed', { error: error?.message, granted: granted?.map((each) => each.qos) }))
  },
  unsubscribe({ topic }) {
    client.unsubscribe(topic, (error) => tell('unsubscribed', { error: error?.message }))
  },
  // publish tells when the exchange is over, QoS 2 included.
  publish({ topic, payload, options }) {
    if (options?.properties?.correlationData) {
      options.properties.correlationData = Buffer.from(options.properties.correlationData)
    }
    client.publish(topic, payload, options, (error) => tell('published', { payload, error: error?.message }))
  },
  // cut ends the network connection without a DISCONNECT.
  cut() {
    client.stream.destroy()
  },
  end() {
    client.end(false, {}, () => tell('end'))
  },
}

const input = createInterface({ input: process.stdin })
input.on('line', (line) => {
  const { command, ...fields } = JSON.parse(line)
  commands[command](fields)
})
input.on('close', () => process.exit(0))
