// MQTT.js as a client of the load: see ../doc.go and ../node.go. It takes requests and gives answers in lines of JSON, and ends
// with its standard input. Times are milliseconds of performance.now, which never goes back.
'use strict'
const { createInterface } = require('node:readline')
const { performance } = require('node:perf_hooks')
const { connect } = require('mqtt')

const headerSize = 24 // of the ledger; 8 more bytes are a time, which is not known here and stays 0
const timedSize = 32
const lateAfter = 2 // as client.LateAfter
const progressEvery = 100
const stallEvery = 200

const tell = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')

let connections = []
let run // the one under way

// fail ends what is under way with an error; the process is then not used again.
let failed = false
function fail(message) {
  if (failed) return
  failed = true
  tell({ error: String(message) })
}

function open({ addrs, ids, version, timeout, username, password, window, qos }) {
  connections = new Array(ids.length)
  let next = 0
  let opened = 0
  const dial = () => {
    const i = next++
    if (i >= ids.length || failed) return
    const where = `connection ${i + 1} of ${ids.length} to ${addrs[i % addrs.length]}`
    const client = connect('mqtt://' + addrs[i % addrs.length], {
      clientId: ids[i], clean: true, protocolVersion: version, reconnectPeriod: 0, connectTimeout: timeout,
      ...(username ? { username, password } : {}),
    })
    const c = (connections[i] = { client, closing: false })
    client.once('connect', (ack) => {
      const { receiveMaximum, maximumQoS } = ack.properties ?? {}
      if (maximumQoS !== undefined && qos > maximumQoS) {
        return fail(`${where}: QoS ${qos}: the broker takes at most QoS ${maximumQoS} (Maximum QoS of its CONNACK)`)
      }
      if (receiveMaximum && window > receiveMaximum) {
        return fail(`${where}: window ${window}: the broker takes at most ${receiveMaximum} exchanges of a connection (Receive Maximum of its CONNACK); ask for a smaller window`)
      }
      if (++opened === ids.length) tell({ opened: true })
      dial()
    })
    client.on('error', (error) => fail(`${where}: ${error.message || error.code || error}`))
    client.on('disconnect', (packet) => fail(`${where}: the broker disconnects with reason code ${packet.reasonCode}`))
    client.on('close', () => { if (!c.closing) fail(`${where}: the connection ended`) })
  }
  for (let i = 0; i < 16; i++) dial()
}

// close disconnects. A client with something outstanding would wait for it, and is cut off instead.
function close() {
  let left = connections.length
  if (left === 0) return tell({ closed: true })
  for (const c of connections) {
    c.closing = true
    c.client.end(c.level > 0, {}, () => { if (--left === 0) tell({ closed: true }) })
  }
  connections = []
}

const crcTable = new Uint32Array(256).map((_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0x82f63b78 : n >>> 1
  return n
})

function crc32c(bytes, from) {
  let crc = 0xffffffff
  for (let i = from; i < bytes.length; i++) crc = crcTable[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}

// stamped is message seq with the header of the ledger.
function stamped(c, seq, size) {
  const payload = Buffer.from(c.template.subarray(0, size))
  payload.writeUInt32BE(Math.floor(seq / 2 ** 32), 16)
  payload.writeUInt32BE(seq % 2 ** 32, 20)
  payload.writeUInt32BE(crc32c(payload, 4), 0)
  return payload
}

// Counts of latencies, by microseconds with eleven significant bits.
class Histogram {
  counts = new Map()
  add(ms) {
    let us = Math.max(0, Math.round(ms * 1000))
    let unit = 1
    while (us >= unit * 2048) unit *= 2
    if (unit > 1) us = Math.floor(us / unit) * unit + unit / 2
    this.counts.set(us, (this.counts.get(us) ?? 0) + 1)
  }
  pairs() { return [...this.counts] }
}

// until is how many messages a schedule wants by a time, and at the instant of message n: see load.Pace. Seconds.
const ramped = (p) => p.over > 0 && p.from !== p.to
function until(p, t) {
  if (!ramped(p) || t <= p.hold) return p.from * Math.max(0, t)
  const before = p.from * p.hold
  const x = t - p.hold
  if (x >= p.over) return before + ((p.from + p.to) / 2) * p.over + p.to * (x - p.over)
  return before + p.from * x + ((p.to - p.from) * x * x) / (2 * p.over)
}
function at(p, n) {
  const count = n - p.from * p.hold
  if (!ramped(p) || count <= 0) return n / p.from
  const whole = ((p.from + p.to) / 2) * p.over
  if (count >= whole) return p.hold + p.over + (count - whole) / p.to
  const a = (p.to - p.from) / (2 * p.over)
  return p.hold + (2 * count) / (p.from + Math.sqrt(Math.max(0, p.from * p.from + 4 * a * count)))
}

// instant is when message seq of a connection is wanted.
const instant = (c, seq) => run.begun + 1000 * at(run.pace, seq * connections.length + c.number)

// sizeOf is the payload of message seq of a connection.
const sizeOf = (c, seq) => (run.sizes ? run.sizes[(seq + c.number * run.apart) % run.sizes.length] : run.payload)

function start({ qos, window, payload, sizes, apart, topics, quotas, warmup, duration, pace, drain, stall, ledger }) {
  const now = performance.now()
  run = {
    qos, window, payload, sizes, apart, topics, pace, drain, stall, ledger, options: { qos }, begun: now,
    plannedFrom: now + warmup, plannedTo: duration > 0 ? now + warmup + duration : Infinity,
    measuring: false, from: 0, to: 0, cpu: undefined, stopping: false, over: false, stopped: 0,
    messages: 0, bytes: 0, published: 0, acked: 0, lastAck: 0, late: 0, area: 0,
    service: new Histogram(), response: new Histogram(), timers: [],
  }
  const body = Buffer.alloc(payload)
  for (let i = 0; i < payload; i++) body[i] = 97 + (i % 26)
  connections.forEach((c, i) => {
    Object.assign(c, {
      number: i, next: 0, quota: quotas[i], level: 0, last: now, heard: now, topics: topics[i], template: body, timer: undefined, unacked: new Set(),
    })
    if (!ledger) return
    c.template = Buffer.from(body)
    c.template.write(ledger, 4, 'hex')
    c.template.writeUInt32BE(i, 12)
    if (payload >= timedSize) c.template.fill(0, headerSize, timedSize) // so is that of a shorter message, up to its end
  })
  run.timers.push(setInterval(() => tell({ published: run.published }), progressEvery), setInterval(watch, Math.min(stall, stallEvery)))
  if (warmup > 0) run.timers.push(setTimeout(measure, warmup))
  else measure()
  if (duration > 0) run.timers.push(setTimeout(stop, warmup + duration))
  for (const c of connections) pump(c)
}

// measure begins the measured time.
function measure() {
  run.from = performance.now()
  run.cpu = process.cpuUsage()
  run.measuring = true
  for (const c of connections) c.last = run.from
}

// measured ends it.
function measured(at) {
  if (!run.measuring) return
  for (const c of connections) advance(c, at)
  run.measuring = false
  run.to = at
  run.cpu = process.cpuUsage(run.cpu)
}

// stop ends the measured time and publishing; what is outstanding is waited for.
function stop() {
  const now = performance.now()
  measured(now)
  run.stopping = true
  run.stopped = now
  finish()
}

// exhausted reports whether a connection has nothing more to publish.
const exhausted = (c) => c.next >= c.quota

// finish ends the run once nothing is outstanding and nothing more comes.
function finish() {
  if (run.over || !connections.every((c) => c.level === 0 && (run.stopping || exhausted(c)))) return
  if (!run.stopping) measured(Math.max(run.lastAck, run.from)) // all was published before the end
  end()
}

function end() {
  run.over = true
  for (const timer of run.timers) clearTimeout(timer)
  for (const c of connections) clearTimeout(c.timer)
  const { messages, bytes, published, acked, late, from, to, begun, lastAck, cpu } = run
  let missed = 0
  if (run.pace) {
    const all = Math.floor(until(run.pace, (Math.min(run.plannedTo, performance.now()) - 1e-6 - begun) / 1000))
    for (const c of connections) {
      const due = all < c.number ? 0 : Math.floor((all - c.number) / connections.length) + 1
      missed += Math.max(0, Math.min(due, c.quota) - c.next)
    }
  }
  tell({
    done: {
      messages, bytes, published, acked, late, missed, duration: to - from, lastAck: lastAck ? lastAck - begun : -1,
      inFlight: to > from ? run.area / (to - from) / connections.length : 0, cpu: cpu ? (cpu.user + cpu.system) / 1e6 : -1,
      service: run.service.pairs(), response: run.response.pairs(),
      ...(run.ledger ? { counts: connections.map((c) => c.next), unacked: connections.map((c) => [...c.unacked]) } : {}),
    },
  })
}

// watch ends a run that drains for too long, or in which nothing comes any more.
function watch() {
  const now = performance.now()
  const idle = run.stopping || connections.every(exhausted)
  if (idle && !run.stopped) run.stopped = now
  if (idle && now - run.stopped >= run.drain) {
    measured(Math.max(run.lastAck, run.from))
    return end()
  }
  for (const c of connections) {
    if (c.level > 0 && now - c.heard >= run.stall) {
      return fail(`connection ${c.number + 1} of ${connections.length}: stalled: ${c.level} exchanges outstanding for ${Math.round(now - c.heard)} ms, and nothing is acknowledged`)
    }
  }
}

// advance integrates what is outstanding over the measured time.
function advance(c, now) {
  if (run.measuring) run.area += c.level * (now - c.last)
  c.last = now
}

// pump publishes what the window has room for and, in an open loop, what is due.
function pump(c) {
  while (c.level < run.window && !exhausted(c) && !run.stopping) {
    const now = performance.now()
    let wanted = 0
    if (run.pace) {
      wanted = instant(c, c.next)
      if (wanted >= run.plannedTo) return
      if (now < wanted) {
        c.timer ??= setTimeout(() => { c.timer = undefined; pump(c) }, wanted - now)
        return
      }
      if (run.measuring && now - wanted > lateAfter) run.late++
    }
    publish(c, now, wanted)
  }
}

function publish(c, now, wanted) {
  const current = run
  const seq = c.next++
  run.published++
  advance(c, now)
  if (c.level++ === 0) c.heard = now
  if (run.ledger) c.unacked.add(seq)
  const size = sizeOf(c, seq)
  const payload = run.ledger ? stamped(c, seq, size) : size === c.template.length ? c.template : c.template.subarray(0, size)
  const sent = performance.now()
  c.client.publish(c.topics[seq % c.topics.length], payload, run.options, (error) => {
    if (current.over) return
    if (error) return fail(`connection ${c.number + 1} of ${connections.length}: publish: ${error.message}`)
    const now = performance.now()
    advance(c, now)
    c.level--
    c.heard = run.lastAck = now
    run.acked++
    if (run.ledger) c.unacked.delete(seq)
    if (run.measuring) {
      run.messages++
      run.bytes += size
      run.service.add(now - sent)
    }
    if (run.pace && wanted >= run.plannedFrom && wanted < run.plannedTo) run.response.add(now - wanted)
    pump(c)
    if (c.level === 0) finish()
  })
}

process.on('SIGINT', () => {}) // of the terminal: the program that started this one ends it
process.on('uncaughtException', (error) => fail(error.stack))
const input = createInterface({ input: process.stdin })
input.on('line', (line) => {
  const request = JSON.parse(line)
  if (request.open) open(request.open)
  else if (request.run) start(request.run)
  else if (request.close) close()
})
input.on('close', () => process.exit(0))
