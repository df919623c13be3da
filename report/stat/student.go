package stat

import "gonum.org/v1/gonum/stat/distuv"

// confidence of every interval in this package.
const confidence = 0.95

// tQuantile returns t with P(|T| <= t) = probability for Student's t with df >= 1 degrees of freedom.
func tQuantile(df int, probability float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(df)}.Quantile((1 + probability) / 2)
}
