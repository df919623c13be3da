// Package history keeps the numbers of many runs, a line of JSON for each arm at each point, so that a repository can hold
// them and a diff shows what was added; and it finds where a series of them changed.
//
// A series is what may be compared over time: the same scenario, arm name, point and machine. Its change points come from
// E-divisive (Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of Multivariate Data", Journal
// of the American Statistical Association 109, 2014) with the exponent 1 on the logarithms of the values: the split that
// maximises the energy distance between both sides, tested by permutation, and each side again. It needs no distribution, and
// a single outlier is no change. Permutations come from a fixed seed, so that the same history gives the same answer.
//
// The package does no I/O but on readers and writers that it is given.
package history
