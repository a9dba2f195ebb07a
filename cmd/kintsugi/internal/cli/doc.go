// Package cli is what the commands of kintsugi have in common: how they refuse arguments, what they say while something
// takes long, what they log, and the exit status that each error means. Begin with [Status].
//
// A status is a promise to whatever starts processes: 1 may go away with a restart, and 2 and 78 need a person.
package cli
