// Package cluster tries the chart on the real control plane of Kubernetes: its API server,
// controllers and scheduler, built from their modules. There is no container runtime. A node here
// is a goroutine that runs each pod that is bound to it as a process, in a folder that is its root,
// with an address of its own on loopback and the pod's volumes, arguments and variables; it sends
// SIGTERM and SIGKILL as a kubelet does, and says what has come of it. So the Jobs, the disruption
// budget and the statuses of roles are held against the controllers that decide over them, and the
// run against what they do.
//
// What a node here does not do: images, limits of resources, probes, network policies.
//
// `make kubernetes` builds and runs it, as root, since only root may change the root of a process.
package cluster
