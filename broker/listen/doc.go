// Package listen accepts the connections of an MQTT broker: plain TCP, TLS, WebSocket and WebSocket over TLS. Each gives a
// net.Conn that carries MQTT packets, and the name that a client certificate proved. What the packets say, and who may do
// what, is left to package broker.
//
// # Listeners
//
// A listener is a URL: mqtt://HOST:PORT (or tcp), mqtts://HOST:PORT (or tls, ssl), ws://HOST:PORT[/PATH] and
// wss://HOST:PORT[/PATH]. The port is never left out. With a path only that path is upgraded, without one every path.
//
// # TLS
//
// TLS 1.2 is the lowest version. Every handshake reads the certificate and the client CA from one pointer, which Reload
// replaces only when all files are good; connections that are open keep theirs. Sessions are not resumed by ticket, because
// a ticket would outlive a CA that was taken away. A client certificate that was verified gives its Common Name as the
// client's name; one without a Common Name is refused.
//
// # WebSocket
//
// The client must offer the subprotocol "mqtt" [MQTT-6.0.0-3], which is selected [MQTT-6.0.0-4]. Packets come in binary
// frames and may span frames or share one [MQTT-6.0.0-2]; a text frame closes the connection [MQTT-6.0.0-1]. A browser's page
// of another origin is refused unless its host matches one of Origins, so that a page that someone happens to open cannot
// talk to a broker on their loopback interface.
//
// # Limits
//
// Connections are counted from accept to close, over all listeners; one too many is accepted and closed at once, so that
// its client notices, and logged at most once a second. The TLS handshake and the HTTP upgrade have to be done within
// HandshakeTimeout. A connection's handshake never holds up the accept loop.
package listen
