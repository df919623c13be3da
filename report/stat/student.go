package stat

import "gonum.org/v1/gonum/stat/distuv"

// confidence of every interval in this package.
const confidence = 0.95

// tQuantile returns t with P(|T| <= t) = probability for Student's t with df > 0 degrees of freedom.
func tQuantile(df, probability float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile((1 + probability) / 2)
}

// tSurvival returns P(|T| >= t) for t >= 0.
func tSurvival(df, t float64) float64 {
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.CDF(-t)
}
