package target

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestReadLeaders(t *testing.T) {
	t.Parallel()
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	const metric = "stream_leader"
	for _, c := range []struct {
		why, path, metric, answer string
		want                      map[string]string
		problem                   string
	}{
		{
			why: "nats-server", answer: `{"account_details":[{"name":"$G","stream_detail":[{"name":"$MQTT_msgs","cluster":{"leader":"n2"}},{"name":"alone"},{"name":"electing","cluster":{}}]}]}`,
			want: map[string]string{"$MQTT_msgs": "n2", "electing": ""},
		},
		{why: "no streams yet", answer: `{"memory":0}`, want: map[string]string{}},
		{why: "not JSON", answer: "<html>", problem: "read what it says of its streams"},
		{
			why: "metrics", metric: metric, answer: "# TYPE stream_leader gauge\nstream_leader{leader=\"n1\",stream=\"INF_journal\"} 1\nother 3\n",
			want: map[string]string{"INF_journal": "n1"},
		},
		{why: "a broker from before the metric", metric: metric, answer: "other 3\n", problem: "it has no metric stream_leader"},
		{why: "no metrics", metric: metric, answer: "{}", problem: "read its metrics"},
		{why: "trouble", path: "/gone", answer: "{}", problem: "says 503"},
	} {
		answer = c.answer
		got := map[string]string{}
		err := readLeaders(t.Context(), server.Client(), server.URL+c.path, c.metric, got)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %s", c.why, err, c.problem)
			}
		case err != nil || !reflect.DeepEqual(got, c.want):
			t.Errorf("%s: %v, %v, want %v", c.why, got, err, c.want)
		}
	}
}
