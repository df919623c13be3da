package broker

import (
	"testing"

	"inflight/broker/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
