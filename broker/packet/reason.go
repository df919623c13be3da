package packet

import (
	"errors"
	"fmt"
)

// ReasonCode is the result of an operation in MQTT 5.0, section 2.4. From 0x80 on it is a failure.
type ReasonCode byte

// The Reason Codes of table 2-6. Some values have a name for each packet that they appear in.
const (
	Success                         ReasonCode = 0x00
	NormalDisconnection             ReasonCode = 0x00 // DISCONNECT
	GrantedQoS0                     ReasonCode = 0x00 // SUBACK
	GrantedQoS1                     ReasonCode = 0x01
	GrantedQoS2                     ReasonCode = 0x02
	DisconnectWithWill              ReasonCode = 0x04
	NoMatchingSubscribers           ReasonCode = 0x10
	NoSubscriptionExisted           ReasonCode = 0x11
	ContinueAuthentication          ReasonCode = 0x18
	ReAuthenticate                  ReasonCode = 0x19
	UnspecifiedError                ReasonCode = 0x80
	MalformedPacket                 ReasonCode = 0x81
	ProtocolError                   ReasonCode = 0x82
	ImplementationSpecificError     ReasonCode = 0x83
	UnsupportedProtocolVersion      ReasonCode = 0x84
	ClientIdentifierNotValid        ReasonCode = 0x85
	BadUserNameOrPassword           ReasonCode = 0x86
	NotAuthorized                   ReasonCode = 0x87
	ServerUnavailable               ReasonCode = 0x88
	ServerBusy                      ReasonCode = 0x89
	Banned                          ReasonCode = 0x8A
	ServerShuttingDown              ReasonCode = 0x8B
	BadAuthenticationMethod         ReasonCode = 0x8C
	KeepAliveTimeout                ReasonCode = 0x8D
	SessionTakenOver                ReasonCode = 0x8E
	TopicFilterInvalid              ReasonCode = 0x8F
	TopicNameInvalid                ReasonCode = 0x90
	PacketIdentifierInUse           ReasonCode = 0x91
	PacketIdentifierNotFound        ReasonCode = 0x92
	ReceiveMaximumExceeded          ReasonCode = 0x93
	TopicAliasInvalid               ReasonCode = 0x94
	PacketTooLarge                  ReasonCode = 0x95
	MessageRateTooHigh              ReasonCode = 0x96
	QuotaExceeded                   ReasonCode = 0x97
	AdministrativeAction            ReasonCode = 0x98
	PayloadFormatInvalid            ReasonCode = 0x99
	RetainNotSupported              ReasonCode = 0x9A
	QoSNotSupported                 ReasonCode = 0x9B
	UseAnotherServer                ReasonCode = 0x9C
	ServerMoved                     ReasonCode = 0x9D
	SharedSubscriptionsNotSupported ReasonCode = 0x9E
	ConnectionRateExceeded          ReasonCode = 0x9F
	MaximumConnectTime              ReasonCode = 0xA0
	SubscriptionIDsNotSupported     ReasonCode = 0xA1
	WildcardsNotSupported           ReasonCode = 0xA2
)

// typeSet is a set of packet types, bit t for type t. The reserved type 0 stands for the Will Properties.
type typeSet uint16

func (s typeSet) has(t Type) bool { return t < 16 && s>>t&1 != 0 }

// The packets that share their Reason Codes, for the table below.
const (
	onConnack typeSet = 1 << CONNACK
	onReceipt typeSet = 1<<PUBACK | 1<<PUBREC
	onRelease typeSet = 1<<PUBREL | 1<<PUBCOMP
	onSuback  typeSet = 1 << SUBACK
	onUnsub   typeSet = 1 << UNSUBACK
	onEnd     typeSet = 1 << DISCONNECT
	onAuth    typeSet = 1 << AUTH
)

// reason is one row of table 2-6, with who may send it in which packet: tables 3-4 to 3-7 and the "sent by" columns of
// sections 3.14.2.1 and 3.15.2.1. Packets that only a Server sends are in server only.
type reason struct {
	name           string
	client, server typeSet
}

// reasons is indexed by Reason Code; an empty name is no Reason Code. 0x8C in a DISCONNECT is in table 2-6 only.
var reasons = [...]reason{
	Success:                         {"Success", onReceipt | onRelease | onEnd, onConnack | onReceipt | onRelease | onSuback | onUnsub | onEnd | onAuth},
	GrantedQoS1:                     {"Granted QoS 1", 0, onSuback},
	GrantedQoS2:                     {"Granted QoS 2", 0, onSuback},
	DisconnectWithWill:              {"Disconnect with Will Message", onEnd, 0},
	NoMatchingSubscribers:           {"No matching subscribers", 0, onReceipt},
	NoSubscriptionExisted:           {"No subscription existed", 0, onUnsub},
	ContinueAuthentication:          {"Continue authentication", onAuth, onAuth},
	ReAuthenticate:                  {"Re-authenticate", onAuth, 0},
	UnspecifiedError:                {"Unspecified error", onReceipt | onEnd, onConnack | onReceipt | onSuback | onUnsub | onEnd},
	MalformedPacket:                 {"Malformed Packet", onEnd, onConnack | onEnd},
	ProtocolError:                   {"Protocol Error", onEnd, onConnack | onEnd},
	ImplementationSpecificError:     {"Implementation specific error", onReceipt | onEnd, onConnack | onReceipt | onSuback | onUnsub | onEnd},
	UnsupportedProtocolVersion:      {"Unsupported Protocol Version", 0, onConnack},
	ClientIdentifierNotValid:        {"Client Identifier not valid", 0, onConnack},
	BadUserNameOrPassword:           {"Bad User Name or Password", 0, onConnack},
	NotAuthorized:                   {"Not authorized", onReceipt, onConnack | onReceipt | onSuback | onUnsub | onEnd},
	ServerUnavailable:               {"Server unavailable", 0, onConnack},
	ServerBusy:                      {"Server busy", 0, onConnack | onEnd},
	Banned:                          {"Banned", 0, onConnack},
	ServerShuttingDown:              {"Server shutting down", 0, onEnd},
	BadAuthenticationMethod:         {"Bad authentication method", onEnd, onConnack | onEnd},
	KeepAliveTimeout:                {"Keep Alive timeout", 0, onEnd},
	SessionTakenOver:                {"Session taken over", 0, onEnd},
	TopicFilterInvalid:              {"Topic Filter invalid", 0, onSuback | onUnsub | onEnd},
	TopicNameInvalid:                {"Topic Name invalid", onReceipt | onEnd, onConnack | onReceipt | onEnd},
	PacketIdentifierInUse:           {"Packet Identifier in use", onReceipt, onReceipt | onSuback | onUnsub},
	PacketIdentifierNotFound:        {"Packet Identifier not found", onRelease, onRelease},
	ReceiveMaximumExceeded:          {"Receive Maximum exceeded", onEnd, onEnd},
	TopicAliasInvalid:               {"Topic Alias invalid", onEnd, onEnd},
	PacketTooLarge:                  {"Packet too large", onEnd, onConnack | onEnd},
	MessageRateTooHigh:              {"Message rate too high", onEnd, onEnd},
	QuotaExceeded:                   {"Quota exceeded", onReceipt | onEnd, onConnack | onReceipt | onSuback | onEnd},
	AdministrativeAction:            {"Administrative action", onEnd, onEnd},
	PayloadFormatInvalid:            {"Payload format invalid", onReceipt | onEnd, onConnack | onReceipt | onEnd},
	RetainNotSupported:              {"Retain not supported", 0, onConnack | onEnd},
	QoSNotSupported:                 {"QoS not supported", 0, onConnack | onEnd},
	UseAnotherServer:                {"Use another server", 0, onConnack | onEnd},
	ServerMoved:                     {"Server moved", 0, onConnack | onEnd},
	SharedSubscriptionsNotSupported: {"Shared Subscriptions not supported", 0, onSuback | onEnd},
	ConnectionRateExceeded:          {"Connection rate exceeded", 0, onConnack | onEnd},
	MaximumConnectTime:              {"Maximum connect time", 0, onEnd},
	SubscriptionIDsNotSupported:     {"Subscription Identifiers not supported", 0, onSuback | onEnd},
	WildcardsNotSupported:           {"Wildcard Subscriptions not supported", 0, onSuback | onEnd},
}

// Known reports whether the specification has the Reason Code at all.
func (c ReasonCode) Known() bool { return int(c) < len(reasons) && reasons[c].name != "" }

// Failed reports whether the code says that the operation failed.
func (c ReasonCode) Failed() bool { return c >= 0x80 }

// String is the specification's name of the code.
func (c ReasonCode) String() string {
	if !c.Known() {
		return fmt.Sprintf("reason code 0x%02X", byte(c))
	}
	return reasons[c].name
}

// Legal reports whether a peer of the given role may send the code in a packet of type t [MQTT-3.2.2-8] [MQTT-3.4.2-1]
// [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1] [MQTT-3.9.3-2] [MQTT-3.11.3-2] [MQTT-3.14.2-1] [MQTT-3.15.2-1].
func (c ReasonCode) Legal(t Type, from Role) bool {
	if !c.Known() {
		return false
	}
	if from == FromServer {
		return reasons[c].server.has(t)
	}
	return reasons[c].client.has(t)
}

// codeStatements are the statements that restrict the Reason Codes of a packet.
var codeStatements = map[Type]string{
	CONNACK: "MQTT-3.2.2-8", PUBACK: "MQTT-3.4.2-1", PUBREC: "MQTT-3.5.2-1", PUBREL: "MQTT-3.6.2-1", PUBCOMP: "MQTT-3.7.2-1",
	SUBACK: "MQTT-3.9.3-2", UNSUBACK: "MQTT-3.11.3-2", DISCONNECT: "MQTT-3.14.2-1", AUTH: "MQTT-3.15.2-1",
}

// checkCode checks the Reason Code of a decoded packet.
func checkCode(t Type, code ReasonCode, from Role) error {
	if code.Legal(t, from) {
		return nil
	}
	return protocolError(t, codeStatements[t], fmt.Sprintf("Reason Code 0x%02X is not one that a %v sends here", byte(code), from))
}

// CodeOf is the Reason Code to answer err with, in the CONNACK or DISCONNECT that closes an MQTT 5.0 connection, section
// 4.13: that of an [*Error], Packet too large for [ErrTooLarge], and Unspecified error for what is not of this package.
func CodeOf(err error) ReasonCode {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, ErrTooLarge):
		return PacketTooLarge
	}
	return UnspecifiedError
}

// returnCodes are the CONNACK return codes of MQTT 3.1.1 as Reason Codes, by return code.
var returnCodes = [...]ReasonCode{
	Accepted: Success, RefusedLevel: UnsupportedProtocolVersion, RefusedIdentifier: ClientIdentifierNotValid,
	RefusedUnavailable: ServerUnavailable, RefusedCredentials: BadUserNameOrPassword, RefusedUnauthorized: NotAuthorized,
}

// ReturnCode is the CONNACK return code of MQTT 3.1.1 that says what c says in 5.0; where 3.1.1 has no word for a failure
// it is [RefusedUnavailable].
func (c ReasonCode) ReturnCode() byte {
	switch c {
	case UnsupportedProtocolVersion:
		return RefusedLevel
	case ClientIdentifierNotValid:
		return RefusedIdentifier
	case BadUserNameOrPassword:
		return RefusedCredentials
	case NotAuthorized, Banned, BadAuthenticationMethod:
		return RefusedUnauthorized
	}
	if c.Failed() {
		return RefusedUnavailable
	}
	return byte(c)
}
