package stat

import (
	"math"
	"testing"
)

// The two-sided 95 % quantiles as printed in tables.
func TestTQuantile(t *testing.T) {
	tests := []struct {
		df   int
		want float64
	}{
		{1, 12.706},
		{2, 4.303},
		{3, 3.182},
		{4, 2.776},
		{5, 2.571},
		{10, 2.228},
		{15, 2.131},
		{30, 2.042},
		{60, 2.000},
		{120, 1.980},
		{999, 1.962},
		{10_000, 1.960},
		{1 << 40, 1.960},
	}
	for _, test := range tests {
		if got := tQuantile(float64(test.df), 0.95); math.Abs(got-test.want) > 0.0006 {
			t.Errorf("tQuantile(%d) = %.4f, want %.3f", test.df, got, test.want)
		}
	}
	if got := tQuantile(4, 0.99); math.Abs(got-4.604) > 0.0006 {
		t.Errorf("tQuantile(4) at 99 %% = %.4f, want 4.604", got)
	}
	for _, test := range tests {
		if got := tSurvival(float64(test.df), tQuantile(float64(test.df), 0.95)); math.Abs(got-0.05) > 1e-4 {
			t.Errorf("tSurvival(%d) at its 95 %% quantile = %v", test.df, got)
		}
	}
}
