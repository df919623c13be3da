package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// Healthy reports why the node cannot be used now: JetStream is down, it has no contact with the leader of the cluster, or
// a stream has no leader, which is how a lost majority shows. It asks nobody else and returns at once.
func (n *Node) Healthy() error {
	status := n.srv.Healthz(&server.HealthzOptions{JSMetaOnly: true})
	if status.StatusCode != 200 {
		return fmt.Errorf("embedded node: %s", status.Error)
	}
	if !n.Clustered() {
		return nil
	}
	leaders, err := n.Leaders()
	if err != nil {
		return err
	}
	var errs []error
	for _, stream := range slices.Sorted(maps.Keys(leaders)) {
		if leaders[stream] == "" {
			errs = append(errs, fmt.Errorf("stream %s has no leader: a majority of its replicas must be up", stream))
		}
	}
	return errors.Join(errs...)
}

// Leaders is which server leads each stream that this node has a copy of, as this node knows it: "" where there is none at
// the moment. Alone, a node leads all of them, and none is named.
func (n *Node) Leaders() (map[string]string, error) {
	info, err := n.srv.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil, fmt.Errorf("embedded node: %w", err)
	}
	leaders := map[string]string{}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Cluster != nil {
				leaders[stream.Name] = stream.Cluster.Leader
			}
		}
	}
	return leaders, nil
}
