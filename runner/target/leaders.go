package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Limits of asking a node about its streams.
const (
	leadersTimeout = 5 * time.Second
	maxLeaders     = 4 << 20 // bytes of an answer
)

// Leaders is which node leads each stream of the cluster, as its nodes know it: "" where there is none at the moment. It is
// nil for a single node, and for a broker that has no such streams or is not ours to ask.
func (b *Broker) Leaders(ctx context.Context) (map[string]string, error) {
	if len(b.leaderURLs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leadersTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	leaders := map[string]string{}
	for i, url := range b.leaderURLs { // a node knows of the streams that it has a copy of
		err := readLeaders(ctx, client, url, b.program.about.Leaders.Metric, leaders)
		if err != nil {
			return nil, fmt.Errorf("ask node %s of %s which nodes lead its streams: %w", b.running()[i].name, b.program.spec.Raw, err)
		}
	}
	return leaders, nil
}

// First is the name of the node that the first connection goes to; "" for a broker that was not started.
func (b *Broker) First() string {
	if all := b.running(); len(all) > 0 {
		return all[0].name
	}
	return ""
}

// readLeaders adds what one node says.
func readLeaders(ctx context.Context, client *http.Client, url, metric string, leaders map[string]string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", url, answer.Status)
	}
	body := io.LimitReader(answer.Body, maxLeaders)
	if metric != "" {
		return leadersOfMetrics(body, metric, leaders)
	}
	return leadersOfJsz(body, leaders)
}

// leadersOfJsz reads the answer of nats-server's /jsz?accounts=true&streams=true.
func leadersOfJsz(body io.Reader, leaders map[string]string) error {
	var answer struct {
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster *struct {
					Leader string `json:"leader"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return fmt.Errorf("read what it says of its streams: %w", err)
	}
	for _, account := range answer.Accounts {
		for _, s := range account.Streams {
			if s.Cluster != nil && (leaders[s.Name] == "" || s.Cluster.Leader != "") {
				leaders[s.Name] = s.Cluster.Leader
			}
		}
	}
	return nil
}

// leadersOfMetrics reads a metric with the labels stream and leader. An older broker may not have it.
func leadersOfMetrics(body io.Reader, metric string, leaders map[string]string) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return fmt.Errorf("read its metrics: %w", err)
	}
	family := families[metric]
	if family == nil {
		return errors.New("it has no metric " + metric)
	}
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if stream := labels["stream"]; stream != "" {
			leaders[stream] = labels["leader"]
		}
	}
	return nil
}
