// Package transport opens connections to brokers over TCP, TLS and WebSocket, for whoever speaks MQTT on them. It knows
// nothing of MQTT but the name of its WebSocket subprotocol.
package transport
