// Package modeltest holds models to the contract of package model.
//
// Check computes gradients and compares them with finite differences of a forward pass in float64 that
// shares no code with any engine (float32 differences would be too noisy to prove anything), and looks for
// everything that would make a restarted worker send another gradient: state, aliasing, accumulation.
// Any engine that executes a model.Description is tested with the same call.
package modeltest
