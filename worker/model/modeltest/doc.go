// Package modeltest checks that an engine fulfils the contract of package model. Every engine that
// executes a model.Description is tested with one call of Check.
//
// Check compares gradients with finite differences of a forward pass in float64 that shares no code
// with any engine (differences in float32 would be too noisy). It also looks for everything that
// would make a restarted worker send another gradient: state, aliasing, and accumulation.
package modeltest
