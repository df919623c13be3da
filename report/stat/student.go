package stat

import "math"

// confidence of every interval in this package.
const confidence = 0.95

// manyDF bounds the length of the sum below; Student's t does not change from there on.
const manyDF = 10_000

// tQuantile returns t with P(|T| <= t) = probability for Student's t with df >= 1 degrees of freedom.
func tQuantile(df int, probability float64) float64 {
	df = min(df, manyDF)
	// t = sqrt(df) tan(theta), and the probability grows with theta from 0 to pi/2.
	low, high := 0.0, math.Pi/2
	for range 60 {
		mid := (low + high) / 2
		if centralProbability(mid, df) < probability {
			low = mid
		} else {
			high = mid
		}
	}
	return math.Sqrt(float64(df)) * math.Tan((low+high)/2)
}

// centralProbability returns P(|T| <= sqrt(df) tan(theta)). For whole degrees of freedom it is a finite sum: Abramowitz
// and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
func centralProbability(theta float64, df int) float64 {
	sin, cos := math.Sincos(theta)
	if df%2 == 0 {
		sum, term := 1.0, 1.0
		for k := 2; k <= df-2; k += 2 {
			term *= cos * cos * float64(k-1) / float64(k)
			sum += term
		}
		return sin * sum
	}
	if df == 1 {
		return theta * 2 / math.Pi
	}
	sum, term := cos, cos
	for k := 3; k <= df-2; k += 2 {
		term *= cos * cos * float64(k-1) / float64(k)
		sum += term
	}
	return (theta + sin*sum) * 2 / math.Pi
}
