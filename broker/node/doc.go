// Package node runs the embedded NATS server with JetStream that a broker process keeps its state in: alone, or as one
// member of a cluster. Nobody outside the process can connect to it, except the other members through the cluster
// listener.
package node
