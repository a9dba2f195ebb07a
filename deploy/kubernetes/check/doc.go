// Package check holds the chart against what Kubernetes takes: it is rendered as Helm does, with
// each file of values in testdata, and each object is read into the type of its kind, in which a
// field that there is not is an error. The chart is a module of its own, so that nobody who builds
// Kintsugi needs Helm.
//
// What is rendered lies beside the values, so that a change of the chart can be read; `go test
// ./... -update`, in this folder, writes it anew.
package check
