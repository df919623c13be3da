// Package scenarios says what to measure: the Scenario type, strict loading of scenario files, the built-in scenarios
// (one YAML file for each question), and the descriptions of known brokers in targets/. It starts nothing and measures
// nothing. Flags and files make the same Scenario.
package scenarios
