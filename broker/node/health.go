package node

import (
	"errors"
	"fmt"

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
	info, err := n.srv.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return fmt.Errorf("embedded node: %w", err)
	}
	var errs []error
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Cluster != nil && stream.Cluster.Leader == "" {
				errs = append(errs, fmt.Errorf("stream %s has no leader: a majority of its replicas must be up", stream.Name))
			}
		}
	}
	return errors.Join(errs...)
}
